// What a forward pass writes to. Internal to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/model.h"

namespace quire {

// What one member owns. In decode every member normalises and quantizes the one token for itself, which
// costs less than waiting for another to do it.
struct PrivateBuffers {
  std::vector<float> floats;
  std::vector<uint8_t> tiles;
  std::vector<float> gate;  // [tile][kHiddenBlock]
  std::vector<float> up;
};

// Cosines and sines of the step's positions, [n_tokens][rope_dims / 2].
struct Angles {
  std::vector<float> cosine;
  std::vector<float> sine;
};

struct Workspace::Buffers {
  size_t n_tokens = 0;        // of the last forward
  std::vector<float> x;       // [n_tokens][width]
  std::vector<float> floats;  // [chunk][widest]
  std::vector<uint8_t> tiles;
  std::vector<float> qkv;       // [chunk][q | k | v]
  std::vector<float> attended;  // [chunk][q]
  std::vector<float> hidden;    // [chunk][ffn], only where a product reads floats
  std::vector<uint8_t> hidden_tiles;
  std::vector<float> branch;  // [chunk][width], only where what is added to x has a norm
  Angles angles;
  Angles window_angles;  // of the layers with a window, where they turn otherwise
  std::vector<PrivateBuffers> members;
};

template <typename T>
void grow(std::vector<T>& buffer, size_t n) {
  if (buffer.size() < n) buffer.resize(n);
}

inline void grow(Angles& angles, const Rope& rope, size_t n_tokens) {
  grow(angles.cosine, n_tokens * rope.half());
  grow(angles.sine, n_tokens * rope.half());
}

}  // namespace quire
