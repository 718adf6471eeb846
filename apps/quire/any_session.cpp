#include "any_session.h"

#include "engine/session_file.h"
#include "tier/tier.h"

namespace quire::cli {

uint64_t HostSession::save(const std::string& path) const { return save_session(session_, path); }

bool HostSession::is_lost() const {
  const Tier* tier = session_.cache().store().tier();
  return tier != nullptr && tier->is_faulty();
}

}  // namespace quire::cli
