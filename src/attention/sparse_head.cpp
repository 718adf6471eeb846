#include "attention/sparse_head.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "store/page_count.h"

namespace quire {

namespace {

// Estimates are coarse where scores are large: rows that stand out among the coded ones are proposed however
// little weight they seem to have beside the exact rows. Half of what levels can tell apart.
constexpr double kMostBelowExact = 11;  // of logarithms

}  // namespace

size_t SparseHead::pages_of(size_t chunk) const {
  return std::min(kPagesPerChunk, keys_.size() - first_page(chunk));
}

// Sinks and kept rows are read in any case.
void SparseHead::leave_out_exact() {
  std::fill_n(levels_.begin(), view_->layer->sink_tokens, uint8_t{0});
  if (view_->copies != nullptr) view_->copies->clear_levels(levels_.data());
  if (view_->kept == nullptr) return;
  const uint32_t* positions = view_->kept->positions.data() + kv_head_ * view_->kept->n;
  for (size_t i = 0; i < view_->kept->n; ++i) levels_[positions[i]] = 0;
}

void SparseHead::begin(const LayerView& view, size_t kv_head, const HeadFrames& frames,
                       const QueryRows& queries, const SparseLimits& limits) {
  view_ = &view;
  frames_ = &frames;
  queries_ = queries;
  limits_ = limits;
  kv_head_ = kv_head;
  outside_ = view.layer->sealed.outside;
  const size_t n_pages = view.n_sealed();
  index_.resize(n_pages);
  keys_.resize(n_pages);
  values_.resize(n_pages);
  const size_t key_offset = view.layer->sealed.key_offset(kv_head);
  const size_t value_offset = view.layer->sealed.value_offset(kv_head);
  const size_t index_bytes = view.layer->sealed.index_bytes();
  for (size_t page = 0; page < n_pages; ++page) {
    // As view.index(), whose sizes take longer to find than the page.
    index_[page] =
        page % kPagesPerIndexBlock == 0 ? view.index(kv_head, page) : index_[page - 1] + index_bytes;
    keys_[page] = {index_[page], nullptr};
    if (outside_) continue;
    const auto* data = reinterpret_cast<const uint8_t*>(view.pages[page]->data);
    keys_[page].rows = data + key_offset;
    values_[page] = data + value_offset;
  }
  make_tables();
  estimates_.resize(tables_.size() * n_pages * kTokensPerPage);
  levels_.resize(n_pages * kTokensPerPage);
  words_.resize(n_pages);
  chunks_.resize(chunks_of(n_pages));
  log_sums_.resize(queries.group);
  exact_log_sums_.resize(queries.group);
  estimated_ = false;
}

// One table a query head, or one of their mean.
void SparseHead::make_tables() {
  const size_t dim = view_->layout->head_dim;
  const float* q = coded_queries();
  size_t n = queries_.group;
  if (limits_.mean_query) {
    mean_query_.assign(dim, 0.0f);
    for (size_t h = 0; h < n; ++h) {
      for (size_t d = 0; d < dim; ++d) mean_query_[d] += q[h * dim + d] / static_cast<float>(n);
    }
    q = mean_query_.data();
    n = 1;
  }
  tables_.resize(n);
  for (size_t h = 0; h < n; ++h, q += dim) {
    if (frames_->index_codebook != nullptr) {
      ops().index.codebook_tables(q, frames_->index_codebook, static_cast<int>(dim), &tables_[h]);
    } else {
      ops().index.sign_tables(q, static_cast<int>(dim), &tables_[h]);
      // A sign stands for the mean of what has that sign.
      tables_[h].unit *= std::sqrt(2.0f / (3.14159265f * static_cast<float>(dim)));
    }
  }
}

void SparseHead::estimate(size_t chunk) {
  const size_t ld = keys_.size() * kTokensPerPage;
  const size_t first = first_page(chunk);
  const int n_pages = static_cast<int>(pages_of(chunk));
  int16_t* estimates = estimates_.data() + first * kTokensPerPage;
  const int dim = static_cast<int>(view_->layout->head_dim);
  ops().index.estimate(tables_.data(), static_cast<int>(tables_.size()), dim, index_.data() + first, n_pages,
                       static_cast<int>(index_.size() - first),
                       index_norms_offset(view_->layer->sealed.keys.code, dim), estimates, ld);
  Chunk& own = chunks_[chunk];
  own.log2_sums.resize(tables_.size());
  for (size_t h = 0; h < tables_.size(); ++h) {
    cap_estimates(h, estimates + h * ld, pages_of(chunk) * kTokensPerPage);
    own.log2_sums[h] = ops().index.mass(estimates + h * ld, n_pages);
  }
}

void SparseHead::propose(const double* log_sums) {
  estimated_ = true;
  offsets_.resize(tables_.size());
  for (size_t h = 0; h < queries_.group; ++h) {
    const size_t table = limits_.mean_query ? 0 : h;
    const double coded = coded_log_sum(table);
    exact_log_sums_[h] = log_sums[h];
    const double bias = frames_->key_framed ? queries_.bias[h] : 0;
    const double all = std::min(add_logs(coded + bias, log_sums[h]), coded + bias + kMostBelowExact);
    offsets_[table] = to_estimate(limits_.mean_query ? coded : all - bias);
  }
  const int n_pages = static_cast<int>(keys_.size());
  ops().index.levels(estimates_.data(), keys_.size() * kTokensPerPage, static_cast<int>(tables_.size()),
                     offsets_.data(), n_pages, levels_.data());
  leave_out_exact();
  n_candidates_ = static_cast<size_t>(
      ops().index.mark(levels_.data(), n_pages, static_cast<int>(limits_.n_candidates), words_.data()));
  list_candidates();
}

namespace {

// The bits set in words, as positions.
void list_bits(const uint64_t* words, size_t n_words, std::vector<uint16_t>& positions) {
  size_t n = 0;
  for (size_t word = 0; word < n_words; ++word) n += static_cast<size_t>(std::popcount(words[word]));
  positions.resize(n);
  uint16_t* to = positions.data();
  for (size_t word = 0; word < n_words; ++word) {
    for (uint64_t left = words[word]; left != 0; left &= left - 1) {
      *to++ = static_cast<uint16_t>(64 * word + static_cast<size_t>(std::countr_zero(left)));
    }
  }
}

}  // namespace

void SparseHead::list_candidates() {
  for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    list_bits(words_.data() + first_page(chunk), pages_of(chunk), chunks_[chunk].rows);
  }
}

KeyRowRefs SparseHead::candidates(size_t chunk) const {
  if (chunk >= chunks_.size()) return {};
  const std::vector<uint16_t>& rows = chunks_[chunk].rows;
  return {keys_.data() + first_page(chunk), rows.data(), static_cast<int>(rows.size())};
}

void SparseHead::stage(size_t chunk, bool kept_only, AttendScratch& scratch) {
  const Chunk& own = chunks_[chunk];
  uint64_t words[kPagesPerChunk] = {};
  for (size_t i = 0; i < own.rows.size(); ++i) {
    if (kept_only && (own.kept[i / kTokensPerPage] >> (i % kTokensPerPage) & 1) == 0) continue;
    words[own.rows[i] / kTokensPerPage] |= uint64_t{1} << (own.rows[i] % kTokensPerPage);
  }
  const size_t first = first_page(chunk);
  scratch.staged.load(*view_, kv_head_, first, {words, pages_of(chunk)}, PieceUse::kSelected);
  for (size_t i = 0; i < pages_of(chunk); ++i) {
    if (words[i] == 0) continue;
    keys_[first + i].rows = reinterpret_cast<const uint8_t*>(scratch.staged.keys(first + i));
    values_[first + i] = reinterpret_cast<const uint8_t*>(scratch.staged.values(first + i));
  }
}

void SparseHead::score(size_t chunk, AttendScratch& scratch) {
  Chunk& own = chunks_[chunk];
  const size_t dim = view_->layout->head_dim;
  own.state.clear(queries_.group, dim);
  own.kept.assign(pages_for(own.rows.size()), 0);
  if (own.rows.empty()) return;
  own.scores.resize(own.n_tiles() * queries_.group * kTokensPerPage);
  if (outside_) stage(chunk, false, scratch);
  ops().codes.score_rows[static_cast<size_t>(view_->layer->sealed.keys.code)](
      *frames_->key_book, coded_queries(), static_cast<int>(queries_.group), static_cast<int>(dim),
      candidates(chunk), own.scores.data(), outside_ ? KeyRowRefs{} : candidates(chunk + 1));
  for (size_t tile = 0; frames_->key_framed && tile < own.n_tiles(); ++tile) {
    add_bias(queries_.bias, queries_.group, own.scores.data() + tile * queries_.group * kTokensPerPage);
  }
  if (const float cap = view_->score_softcap(); cap > 0) {
    ops().cap_scores(own.scores.data(), static_cast<int>(own.scores.size()), cap);
  }
  if (ranks()) sum_scores(own);
}

// Sums of exp(score) of the chunk's candidates, into its state.
void SparseHead::sum_scores(Chunk& chunk) const {
  const size_t group = queries_.group;
  for (size_t i = 0; i < chunk.n_tiles(); ++i) {
    ops().index.row_mass(chunk.scores.data() + i * group * kTokensPerPage, static_cast<int>(group),
                         static_cast<int>(chunk.rows_in(i)), chunk.state.m.data(), chunk.state.l.data());
  }
}

size_t SparseHead::all_tiles() const {
  size_t n = 0;
  for (const Chunk& chunk : chunks_) n += chunk.n_tiles();
  return n;
}

void SparseHead::choose() {
  if (!ranks()) return keep_all();
  for (size_t h = 0; h < queries_.group; ++h) {
    log_sums_[h] = static_cast<float>(scored_log_sum(h));
  }
  levels_.resize(std::max(levels_.size(), all_tiles() * kTokensPerPage));
  limits_.mass > 0 ? keep_by_mass() : keep_by_rank();
}

void SparseHead::keep_all() {
  for (Chunk& chunk : chunks_) {
    for (size_t i = 0; i < chunk.n_tiles(); ++i) chunk.kept[i] = ~uint64_t{0} >> (64 - chunk.rows_in(i));
  }
  n_kept_ = n_candidates_;
}

void SparseHead::keep_by_rank() {
  const size_t n_tiles = all_tiles();
  words_.resize(std::max(words_.size(), n_tiles));
  const size_t tile_scores = queries_.group * kTokensPerPage;
  uint8_t* levels = levels_.data();
  for (const Chunk& chunk : chunks_) {
    for (size_t i = 0; i < chunk.n_tiles(); ++i, levels += kTokensPerPage) {
      ops().index.row_levels(chunk.scores.data() + i * tile_scores, static_cast<int>(queries_.group),
                             log_sums_.data(), static_cast<int>(chunk.rows_in(i)), levels);
    }
  }
  n_kept_ = static_cast<size_t>(ops().index.mark(levels_.data(), static_cast<int>(n_tiles),
                                                 static_cast<int>(limits_.n_rows), words_.data()));
  const uint64_t* word = words_.data();
  for (Chunk& chunk : chunks_) {
    for (uint64_t& kept : chunk.kept) kept = *word++;
  }
}

// Each head of the group keeps its most probable rows; a row is kept if any head does.
void SparseHead::keep_by_mass() {
  for (size_t h = 0; h < queries_.group; ++h) keep_head_by_mass(h);
  n_kept_ = 0;
  for (const Chunk& chunk : chunks_) {
    for (const uint64_t kept : chunk.kept) n_kept_ += static_cast<size_t>(std::popcount(kept));
  }
}

// Rows are kept down to the level at which they, together with the exact rows, hold the share of the mass of
// exact rows and candidates.
void SparseHead::keep_head_by_mass(size_t row) {
  const size_t tile_scores = queries_.group * kTokensPerPage;
  const float offset = log_sums_[row];
  double by_level[kIndexLevels] = {0};
  double candidates = 0;
  uint8_t* levels = levels_.data();
  for (const Chunk& chunk : chunks_) {
    for (size_t i = 0; i < chunk.n_tiles(); ++i, levels += kTokensPerPage) {
      const float* scores = chunk.scores.data() + i * tile_scores + row * kTokensPerPage;
      ops().index.row_levels(scores, 1, &offset, static_cast<int>(chunk.rows_in(i)), levels);
      for (size_t t = 0; t < chunk.rows_in(i); ++t) {
        const double p = std::exp(scores[t] - offset);
        by_level[levels[t]] += p;
        candidates += p;
      }
    }
  }
  const double exact = std::exp(exact_log_sums_[row] - offset);
  const double wanted = limits_.mass * (exact + candidates);
  int least = kIndexLevels;
  for (double sum = exact; sum < wanted && least > 0;) sum += by_level[--least];
  levels = levels_.data();
  for (Chunk& chunk : chunks_) {
    for (size_t i = 0; i < chunk.n_tiles(); ++i, levels += kTokensPerPage) {
      for (size_t t = 0; t < chunk.rows_in(i); ++t) {
        chunk.kept[i] |= static_cast<uint64_t>(levels[t] >= least) << t;
      }
    }
  }
}

SparseHead::NextTile SparseHead::tile_after(size_t chunk, size_t tile) const {
  if (++tile == chunks_[chunk].n_tiles()) {
    if (outside_) return {};  // not there yet
    ++chunk;
    tile = 0;
    while (chunk < chunks_.size() && chunks_[chunk].n_tiles() == 0) ++chunk;
    if (chunk == chunks_.size()) return {};
  }
  const Chunk& own = chunks_[chunk];
  return {{values_.data() + first_page(chunk), own.rows.data() + tile * kTokensPerPage,
           static_cast<int>(own.rows_in(tile))},
          own.kept[tile]};
}

void SparseHead::attend(size_t chunk, AttendScratch& scratch) {
  Chunk& own = chunks_[chunk];
  const size_t dim = view_->layout->head_dim;
  const size_t group = queries_.group;
  own.state.clear();
  own.tops.resize(own.n_tiles() * group);
  scratch.reserve_rows(group);
  if (outside_) stage(chunk, true, scratch);
  for (size_t i = 0; i < own.n_tiles(); ++i) {
    if (own.kept[i] == 0) continue;
    float* scores = own.scores.data() + i * group * kTokensPerPage;
    const auto next = tile_after(chunk, i);
    std::fill_n(scratch.masks.begin(), group, own.kept[i]);
    ops().softmax(scores, scratch.masks.data(), static_cast<int>(group), own.state.m.data(),
                  own.state.l.data(), scratch.correction.data());
    std::copy_n(own.state.m.begin(), group, own.tops.begin() + static_cast<ptrdiff_t>(i * group));
    ops().codes.accumulate_rows[static_cast<size_t>(view_->layer->sealed.values.code)](
        *frames_->value_book, scores, scratch.correction.data(),
        {values_.data() + first_page(chunk), own.rows.data() + i * kTokensPerPage,
         static_cast<int>(chunks_[chunk].rows_in(i))},
        own.kept[i], static_cast<int>(group), static_cast<int>(dim), own.state.o.data(), next.refs,
        next.kept);
  }
}

void SparseHead::list_kept(std::vector<uint32_t>& tokens) const {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    for (size_t tile = 0; tile < chunks_[i].n_tiles(); ++tile) {
      for (uint64_t left = chunks_[i].kept[tile]; left != 0; left &= left - 1) {
        const size_t lane = tile * kTokensPerPage + static_cast<size_t>(std::countr_zero(left));
        tokens.push_back(static_cast<uint32_t>(first_page(i) * kTokensPerPage + chunks_[i].rows[lane]));
      }
    }
  }
}

uint64_t SparseHead::bytes_read() const {
  const SealedLayout& layout = view_->layer->sealed;
  const size_t key_row_bytes = layout.key_bytes() / kTokensPerPage;
  const size_t value_row_bytes = layout.value_bytes() / kTokensPerPage;
  const size_t index_bytes = estimated_ ? keys_.size() * layout.index_bytes() : 0;
  return index_bytes + n_candidates_ * key_row_bytes + n_kept_ * value_row_bytes;
}

}  // namespace quire
