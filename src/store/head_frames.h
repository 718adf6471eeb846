// What sealing and attention need to know of one layer's KV head besides its bytes.
#pragma once

#include "format/code_format.h"
#include "format/frame.h"
#include "format/key_bias.h"

namespace quire {

// The frames that keys and values are coded in, and the tables of their codes. A value; the arrays and
// tables belong to the CacheStatistics that made it.
struct HeadFrames {
  Frame key;
  Frame value;
  bool key_framed = false;  // false: rows are coded as they are
  bool value_framed = false;
  const Codebook* key_book = nullptr;
  const Codebook* value_book = nullptr;
  // Of keys whose index is coded by the prompt's code words: [groups of 4 dims][16][4], in the frame.
  const float* index_codebook = nullptr;
  const KeyBias* key_bias = nullptr;  // taken off keys before they are coded; none: nullptr

  bool keys_sketched() const { return key_book != nullptr && key_book->sketch != nullptr; }
  bool values_sketched() const { return value_book != nullptr && value_book->sketch != nullptr; }
  // Codes want queries in a form of their own.
  bool transforms_queries() const { return key_framed || keys_sketched(); }
};

}  // namespace quire
