#include "cache/make_tier.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tier/slab_file.h"

namespace quire {

namespace {

constexpr uint64_t kUsualCacheBytes = uint64_t{256} << 20;  // where nothing limits it
constexpr size_t kMostRead = size_t{320} << 10;
constexpr size_t kPadding = 8192;
constexpr size_t kMostReads = 32;       // under way
constexpr uint64_t kShareOfReads = 16;  // of a budget: buffers to read with take a 16th
constexpr uint64_t kShareOfPlans = 64;  // and what is wanted a 64th

std::unique_ptr<SlabDevice> open_device(const PagePlace& place) {
  if (place.kind == PagePlace::Kind::kHost) return make_memory_device();
  SlabFile file(place.path);
  if (place.device != PagePlace::Device::kThreads) {
    if (auto device = make_uring_device(file)) return device;
    if (place.device == PagePlace::Device::kUring) {
      throw Error("place=disk: device=io_uring was asked for, and this kernel or this build has none");
    }
  }
  return make_thread_device(std::move(file));
}

std::string name_of(const PagePlace& place) {
  return place.kind == PagePlace::Kind::kHost ? "place=host" : "place=disk in " + place.path;
}

}  // namespace

std::shared_ptr<Tier> make_tier(const Recipe& recipe, const Geometry& geometry, PagePool& pool,
                                std::unique_ptr<SlabDevice> device) {
  const PagePlace& place = recipe.place;
  const uint64_t budget = pool.budget_bytes();
  TierOptions options;
  options.name = name_of(place);
  options.most_bytes = place.size_bytes;
  options.cache_bytes = place.cache_bytes != 0 || budget != 0 ? place.cache_bytes : kUsualCacheBytes;
  for (const LayerLayout& layout : layer_layouts(recipe, geometry)) {
    const PieceLayout pieces = layout.sealed.pieces();
    options.head_bytes = std::max(options.head_bytes, pieces.head_bytes());
    // A page in one read, if it is not too large.
    options.buffer_bytes =
        std::max(options.buffer_bytes, std::min(pieces.page_bytes() + kPadding, kMostRead));
    if (pieces.by_rows) options.row_bytes = std::max(options.row_bytes, pieces.payload_bytes());
  }
  options.n_buffers = budget == 0
                          ? kMostReads
                          : std::clamp<size_t>(budget / kShareOfReads / options.buffer_bytes, 2, kMostReads);
  if (budget != 0) options.plan_bytes = std::min(options.plan_bytes, budget / kShareOfPlans);
  return std::make_shared<Tier>(std::move(device), options, pool.account());
}

std::shared_ptr<Tier> make_tier(const Recipe& recipe, const Geometry& geometry, PagePool& pool) {
  if (!recipe.place.given()) return nullptr;
  check_windows(recipe, geometry);  // some layer has rows that can lie outside
  return make_tier(recipe, geometry, pool, open_device(recipe.place));
}

}  // namespace quire
