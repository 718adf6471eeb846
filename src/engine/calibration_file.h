// Calibrations on disk. A file belongs to one model and is checked whole before any of it is used.
//
//   | "QUIRECAL" | version u32 | layers u32 | query heads u32 | head size u32 | fingerprint, 16 hex digits |
//   | KV heads u32 [layers] | key means f32 | key balance f32 | value means f32 | mean |q k| f32 | checksum
//   u64 |
//
// little-endian, version 2 (1 had no products |q k|); means and balance are [layer][kv_head][head_dim], and
// the checksum covers all before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/statistics.h"

namespace quire {

std::vector<std::byte> encode_calibration(const Calibration& calibration, std::string_view fingerprint);

// Throws Error "NAME: ..." for bytes that are no whole calibration of the model with this fingerprint.
Calibration decode_calibration(std::span<const std::byte> bytes, std::string_view fingerprint,
                               const std::string& name);

// Finds damage, not ill will.
uint64_t calibration_checksum(std::span<const std::byte> bytes);

void save_calibration(const Calibration& calibration, std::string_view fingerprint, const std::string& path);
Calibration load_calibration(const std::string& path, std::string_view fingerprint);

// Where calibrations are kept between runs: $XDG_CACHE_HOME/quire/FINGERPRINT.calibration, with ~/.cache for
// an XDG_CACHE_HOME that is not set; empty when there is no home either.
std::string kept_calibration_path(std::string_view fingerprint);
// save_calibration(), after making the folders on the way to the path.
void keep_calibration(const Calibration& calibration, std::string_view fingerprint, const std::string& path);

}  // namespace quire
