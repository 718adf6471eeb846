// What a file says of the pages that a recipe has promoted, u64: promotions, copies made and forgotten; how
// many pages of the policy's size there are; a number for each of them:
//
//   bits 0-31 its importance as f32 | 32-59 its hits | 60 has a copy | 61 sticky | 62 sticky until the next
//   prompt
//
// and then the page in each slot of the copies, 2^32 - 1 where none is. The copies themselves are made anew,
// which gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/section_file.h"
#include "cache/geometry.h"
#include "cache/hot_rows.h"
#include "policy/hot_pages.h"

namespace quire {

std::vector<uint64_t> hot_values(const HotRows& hot, const Store& store);

struct SavedHot {
  // Throws Error for a section that contradicts itself or the rows; n_sealed [layer].
  static SavedHot read(const SectionFile& file, const Recipe& recipe, const Geometry& geometry,
                       std::span<const size_t> n_sealed);

  HotPages::Counters counters;
  std::vector<HotPages::Page> pages;
  std::vector<uint32_t> slots;
};

}  // namespace quire
