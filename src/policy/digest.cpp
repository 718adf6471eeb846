#include "policy/digest.h"

#include "policy/key_labels.h"
#include "policy/projected_keys.h"
#include "policy/select_quest.h"

namespace quire {

size_t digest_bytes(const PolicyChoice& select, size_t layer, Format key_format, size_t head_dim) {
  switch (select.policy) {
    case Policy::kQuest: return kTokensPerPage / select.number("page") * bound_bytes(key_format, head_dim);
    case Policy::kDoubleSparse: return LabelLayout(select, head_dim).digest_bytes();
    case Policy::kButler: return layer == 0 ? 0 : ProjectedLayout(select).digest_bytes();
    default: return 0;
  }
}

void clear_digest(const PolicyChoice& select, Format key_format, size_t head_dim, size_t n_rows,
                  std::byte* digest) {
  switch (select.policy) {
    case Policy::kQuest: return clear_bounds(select.number("page"), key_format, head_dim, n_rows, digest);
    case Policy::kDoubleSparse: return clear_labels(LabelLayout(select, head_dim), n_rows, digest);
    case Policy::kButler: return clear_projected(ProjectedLayout(select), n_rows, digest);
    default: return;
  }
}

}  // namespace quire
