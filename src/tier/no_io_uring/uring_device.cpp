// Stands in where liburing is missing: threads do the work (tier/thread_device.cpp).
#include "tier/slab_device.h"

namespace quire {

std::unique_ptr<SlabDevice> make_uring_device(SlabFile&) { return nullptr; }

}  // namespace quire
