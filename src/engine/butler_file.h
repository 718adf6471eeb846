// Trained predictors (policy/butler.h) on disk: a safetensors file that belongs to one model.
//
//   metadata  "format" "quire.butler", "version" "1", "model" (its fingerprint), and the geometry, each
//   number
//             under its field's name in decimal digits; of a finished training also "steps", "isa" and
//             "training" (study/butler_trainer.h). Others are not looked at.
//   tensors   producer.P.norm_weight, .norm_bias [width]    producer.P.in [hidden][width]
//             producer.P.out [n_slots][n_heads][dim][hidden]
//             layer.L.projection [n_kv_heads][head_dim][dim], L from 1 on
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "policy/butler.h"
#include "weights/safetensors.h"

namespace quire {

// The model's part of a geometry, with the default of what a predictor chooses. Throws Error for a model that
// no predictor can be made for.
ButlerGeometry butler_geometry(const ModelConfig& config);

// `more`: further metadata. Throws Error where a weight is not finite as `type` rounds it.
std::vector<std::byte> encode_butler(const ButlerWeights& weights, std::string_view fingerprint,
                                     SafetensorsType type, const SafetensorsMetadata& more = {});

// Throws Error "NAME: ..." for a file that is no whole predictor of the model with this fingerprint and
// geometry. Of `model` the fields stride, dim and hidden are not looked at: they are the predictor's own.
ButlerWeights decode_butler(const SafetensorsFile& file, std::string_view fingerprint,
                            const ButlerGeometry& model);

void save_butler(const ButlerWeights& weights, std::string_view fingerprint, const std::string& path,
                 SafetensorsType type, const SafetensorsMetadata& more = {});
ButlerWeights load_butler(const std::string& path, std::string_view fingerprint, const ButlerGeometry& model);

}  // namespace quire
