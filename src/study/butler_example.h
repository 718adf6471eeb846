// What the frozen model shows of one sequence to whoever trains a predictor for it: keys of all tokens, and
// at some positions queries and what the producers read.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "policy/butler.h"
#include "study/haystack.h"

namespace quire {

template <typename T>
struct ButlerExample {
  size_t n_tokens = 0;
  std::vector<size_t> rows;             // positions, ascending
  std::vector<std::vector<T>> inputs;   // [producer] -> [row][width]
  std::vector<std::vector<T>> queries;  // [layer - 1] -> [head][row][head_dim], with 1 / sqrt(head_dim)
  std::vector<std::vector<T>> keys;     // [layer - 1] -> [kv_head][token][head_dim]
};

// Every `stride`-th row from `first` on into `part`, which takes the keys over: give_keys_back() returns
// them.
void take_rows(ButlerExample<float>& example, const ButlerGeometry& geometry, size_t first, size_t stride,
               ButlerExample<float>& part);
void give_keys_back(ButlerExample<float>& example, ButlerExample<float>& part);

// Runs the model over sequences; keeps its buffers between them.
class ButlerTeacher {
 public:
  ButlerTeacher(Engine& engine, const ButlerGeometry& geometry) : engine_(engine), geometry_(geometry) {}

  // `rows`: ascending positions of the sequence. `example` keeps its memory.
  void show(std::span<const int32_t> tokens, std::span<const size_t> rows, ButlerExample<float>& example);

 private:
  Engine& engine_;
  ButlerGeometry geometry_;
  Workspace workspace_;
};

}  // namespace quire
