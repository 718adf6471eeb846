#include "cache/cache.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "cache/hot_rows.h"
#include "cache/lane.h"
#include "cache/make_selector.h"
#include "cache/make_tier.h"
#include "cache/sparse_walks.h"
#include "kernels/ops.h"
#include "tier/charged_bytes.h"

namespace quire {

Cache::Cache(const Recipe& recipe, const Geometry& geometry, PagePool& pool, ModelFacts facts)
    : Cache(recipe, geometry, pool, std::move(facts), make_tier(recipe, geometry, pool)) {}

Cache::Cache(const Recipe& recipe, const Geometry& geometry, PagePool& pool, ModelFacts facts,
             std::shared_ptr<Tier> tier)
    : Cache{std::make_shared<const CacheStatistics>(recipe, geometry, facts),
            make_selector(recipe, geometry, facts),
            recipe,
            geometry,
            pool,
            std::move(tier)} {}

Cache::Cache(std::shared_ptr<const CacheStatistics> statistics, std::unique_ptr<Selector> selector,
             const Recipe& recipe, const Geometry& geometry, PagePool& pool, std::shared_ptr<Tier> tier)
    : recipe_(recipe),
      geometry_(geometry),
      statistics_(std::move(statistics)),
      prompt_(geometry.n_layers),
      store_(own_layouts(recipe, geometry, *statistics_), pool, std::move(tier)),
      selector_(std::move(selector)),
      placement_(std::make_unique<StayInPlace>()),
      full_layer_(geometry.first_full_layer()),
      any_gives_back_(recipe.seals() || recipe.drops() || geometry.has_windows()) {
  check_windows(recipe, geometry);
  if (recipe.promote.given()) hot_ = std::make_unique<HotRows>(recipe, store_);
  if (recipe.drops()) dropping_.emplace(make_retention(recipe.keep, recipe.sink_tokens), geometry);
  if (!recipe.coded || !recipe.keep.given()) return;
  const LogReserve reserve = log_reserve(recipe.keep, recipe.sink_tokens);
  if (is_partial(recipe.keep)) {
    key_reserving_.emplace(reserve);
    return;
  }
  reserving_.emplace(reserve);
  for (size_t layer = 0; layer < geometry.n_layers; ++layer) {
    if (!statistics_->has_key_bias(layer)) continue;
    throw Error("recipe '" + recipe.text() +
                "': keep=log moves rows, and the model's keys have a bias that " +
                "is taken off by position");
  }
}

Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
Cache::~Cache() = default;

void Cache::begin_step(size_t n_new, int n_members) {
  if (is_broken_)
    throw Error("the cache is half way through a step that was given up, and only crop(0) goes on");
  begin_fetching();
  charge_step(n_new, static_cast<size_t>(n_members));
  check_budget(n_new);
  if (extends_at_once(n_new)) store_.extend(n_new);
  step_tokens_ = n_new;
  stats_ = StepStats{};
  selector_->begin_step(n_tokens(), n_new);
  while (lanes_.size() < static_cast<size_t>(n_members)) lanes_.push_back(std::make_unique<Lane>());
  if (dropping_) dropping_->begin_step(static_cast<size_t>(n_members));
  if (reserving_) reserving_->begin_step(n_new, due_pages());
  if (key_reserving_ && due_pages() > 0) {
    key_reserving_->begin_step(store_.layer_layout(full_layer_).sealed_pages(n_tokens() + n_new));
  }
  turn_to_sinks();
  is_broken_ = true;  // until end_step()
  look_ahead(0);
}

// Pages of every layer that sees all tokens that are coded when the step is done.
size_t Cache::due_pages() const {
  if (full_layer_ == geometry_.n_layers) return 0;
  const LayerLayout& layout = store_.layer_layout(full_layer_);
  return layout.sealed_pages(n_tokens() + step_tokens_) - layout.sealed_pages(n_tokens());
}

bool Cache::extends_at_once(size_t n_new) const { return !any_gives_back_ || n_new <= kSmallStep; }

// Before anything is changed or computed: pages are allocated in the middle of a step too, where nothing can
// be refused.
void Cache::check_budget(size_t n_new) const {
  const PagePool& pool = store_.pool();
  if (pool.budget_bytes() == 0) return;
  const uint64_t most = pool.account().firm_bytes() + store_.peak_growth(n_new, extends_at_once(n_new));
  if (most <= pool.budget_bytes()) return;
  throw Error("the cache needs " + std::to_string(most) + " bytes, and its budget is " +
              std::to_string(pool.budget_bytes()));
}

// Of pages and tiers the account knows already.
void Cache::charge_step(size_t n_new, size_t n_members) {
  const uint64_t n_bytes = n_new == 1 ? selector_->step_bytes(n_tokens() + 1, n_members) : 0;
  if (n_bytes == step_bytes()) return;
  step_bytes_.reset();
  if (n_bytes == 0) return;
  step_bytes_ = std::make_unique<FirmBytes>(n_bytes, "what " + recipe_.text() + " compares in a step",
                                            store_.pool().account());
}

uint64_t Cache::step_bytes() const { return step_bytes_ ? step_bytes_->size() : 0; }

void Cache::begin_layer(Worker& worker, size_t layer) {
  if (extends_at_once(step_tokens_)) return;
  if (worker.rank() == 0) store_.extend_layer(layer, step_tokens_);
  worker.barrier();
}

void Cache::append(Worker& worker, size_t layer, size_t first, size_t n, const float* k, const float* v,
                   size_t ld) {
  const RowLayout& layout = store_.layout(layer);
  worker.share(static_cast<int64_t>(layout.n_kv_heads), 1, [&](int64_t head, int64_t) {
    const size_t column = static_cast<size_t>(head) * layout.head_dim;
    store_.write(layer, static_cast<size_t>(head), n_tokens() + first, n, k + column, v + column, ld);
    if (!is_windowed(layer))
      selector_->append(store_, layer, static_cast<size_t>(head), n_tokens() + first, n);
  });
}

void Cache::attend(Worker& worker, size_t layer, size_t first, size_t n, const float* q, size_t ldq,
                   float* out, size_t ldo) {
  const LayerView view = store_.view(layer, n_tokens() + first + n);
  const bool windowed = is_windowed(layer);
  if (!windowed) watch_queries(worker, layer, view, first, n, q, ldq);
  if (const auto limits = sparse_limits(layer, view, n)) {
    return attend_sparse(worker, layer, view, *limits, q, out);
  }
  if (worker.rank() == 0 && !selects(layer, view)) {
    count_reads(view, n);
    selection_ = Selection::all();
    want_rows(layer, view, n);
  }
  if (!reads_in_tiles(n)) {
    attend_parts(worker, layer, view, n, q, ldq, out, ldo);
  } else {
    attend_tiles(worker, layer, view, n, q, ldq, out, ldo);
  }
  if (dropping_ && !windowed) {
    dropping_->observe(worker, layer, view, first, n, step_tokens_, q, ldq);
    if (worker.rank() == 0) stats_.bytes_read += dropping_->observed_bytes(view, first, n, step_tokens_);
  }
  if (observer_ != nullptr && step_tokens_ == 1 && worker.rank() == 0 && !selects(layer, view)) {
    report_all(layer, view);
  }
}

// Each of the last n queries reads the rows up to its own; the queries of a tile share one read of their
// rows' bytes.
void Cache::count_reads(const LayerView& view, size_t n) {
  if (view.window_tokens() > 0) return count_window_reads(view, n);
  const size_t start = view.n_tokens - n;
  const size_t n_sealed = view.n_sealed();
  const size_t n_sinks = n_sealed == 0 && view.sinks != nullptr ? view.layer->sink_tokens : 0;
  const uint64_t beside_bytes =
      n_sealed * view.layer->sealed.n_kv_heads *
          (view.layer->sealed.head_bytes() + view.layer->sealed.index_bytes()) +
      (n_sealed > 0 || n_sinks > 0 ? view.layer->beside_bytes() : 0) +
      (view.exact_keys != nullptr ? view.exact_keys->rows->size_bytes : 0) +
      (view.copies != nullptr ? view.copies->n_rows() * view.layout->token_bytes() : 0);
  stats_.rows_read += view.layout->n_kv_heads * (n * (start + n_sinks) + n * (n + 1) / 2);
  for (size_t tile = 0; tile < n; tile += kTileQueries) {
    const size_t n_open = start + std::min(n, tile + kTileQueries) - n_sealed * kTokensPerPage;
    stats_.bytes_read += n_open * view.layout->token_bytes() + beside_bytes;
  }
}

namespace {

// Of item i of a table with so many columns: row and column.
std::pair<size_t, size_t> place_of(size_t i, size_t n_columns) { return {i / n_columns, i % n_columns}; }

// Copies n queries' rows of one group, q [n][ldq] -> rows [n * group][head_dim].
void gather_rows(const float* q, size_t ldq, size_t n, size_t group_values, float* rows) {
  for (size_t i = 0; i < n; ++i) std::copy_n(q + i * ldq, group_values, rows + i * group_values);
}

// Divides by the sums and writes [n][ldo], the group's heads side by side.
void scatter_output(const PartialState& state, size_t n, size_t group, float* out, size_t ldo) {
  const size_t dim = state.head_dim;
  for (size_t i = 0; i < n; ++i) {
    for (size_t h = 0; h < group; ++h) {
      const size_t row = i * group + h;
      const float inverse = state.l[row] > 0.0f ? 1.0f / state.l[row] : 0.0f;
      float* to = out + i * ldo + h * dim;
      for (size_t d = 0; d < dim; ++d) to[d] = state.o[row * dim + d] * inverse;
    }
  }
}

// The state of a part alone.
void attend_alone(const LayerView& view, size_t head, const Parts::Part& part, const QueryRows& queries,
                  const Selection& selection, const HeadFrames& frames, AttendScratch& scratch,
                  PartialState& state) {
  const size_t n_rows = queries.n_queries * queries.group;
  const size_t dim = view.layout->head_dim;
  state.clear(n_rows, part.kind == Parts::Kind::kSealed ? sealed_width(frames, n_rows, dim) : dim);
  attend_part(view, head, part, queries, selection, &frames, scratch, state);
}

}  // namespace

// The queries of one head in the frame of its keys, if there are sealed pages.
QueryRows Cache::framed_queries(FramedQueries& framed, const Parts& parts, size_t layer, size_t head,
                                QueryRows queries) const {
  if (parts.n_sealed == 0) return queries;
  frame_queries(frames(layer, head), queries.q, queries.n_queries * queries.group, geometry_.head_dim,
                framed.q, framed.bias);
  queries.framed = framed.q.data();
  queries.bias = framed.bias.data();
  return queries;
}

// Merges the states of all parts, which state(i) gives, into lane.total: those of sealed pages first among
// themselves, in their frame.
template <typename StateOf>
void Cache::merge_parts(Lane& lane, const Parts& parts, size_t layer, size_t head, size_t n_rows,
                        const StateOf& state) const {
  const size_t dim = geometry_.head_dim;
  lane.total.clear(n_rows, dim);
  if (parts.n_sealed > 0) lane.coded.clear(n_rows, sealed_width(frames(layer, head), n_rows, dim));
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool sealed = i >= parts.first_sealed() && i < parts.first_open();
    (sealed ? lane.coded : lane.total).merge(state(i));
    if (sealed && i + 1 == parts.first_open()) {
      unframe_output(frames(layer, head), lane.coded);
      lane.total.merge(lane.coded);
    }
  }
}

// Long prefill: tiles of queries are enough work for all members.
void Cache::attend_tiles(Worker& worker, size_t layer, const LayerView& view, size_t n, const float* q,
                         size_t ldq, float* out, size_t ldo) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  const size_t dim = view.layout->head_dim;
  const size_t group = geometry_.n_heads / n_kv_heads;
  const size_t n_tiles = (n + kTileQueries - 1) / kTileQueries;
  const Selection everything = Selection::all();
  worker.share(static_cast<int64_t>(n_tiles * n_kv_heads), 1, [&](int64_t item, int64_t) {
    // Late tiles see more tokens: they go first, so that the last ones handed out are short. Rows in a tier
    // come head by head.
    const auto [outer, inner] = place_of(static_cast<size_t>(item), store_.tier() ? n_tiles : n_kv_heads);
    const size_t tile = n_tiles - 1 - (store_.tier() ? inner : outer);
    const size_t head = store_.tier() ? outer : inner;
    const size_t start = tile * kTileQueries;
    const size_t count = std::min(kTileQueries, n - start);
    const size_t n_rows = count * group;
    Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
    lane.q.resize(n_rows * dim);
    gather_rows(q + start * ldq + head * group * dim, ldq, count, group * dim, lane.q.data());
    const size_t position = view.n_tokens - n + start;
    const Parts parts(view, position + count, view.first_seen(position));
    const QueryRows queries =
        framed_queries(lane.framed, parts, layer, head, {lane.q.data(), count, group, position});
    merge_parts(lane, parts, layer, head, n_rows, [&](size_t i) -> const PartialState& {
      const HeadFrames own = frames(layer, head);
      QueryRows turned{};
      attend_alone(view, head, parts[i], queries_of(parts[i], queries, lane, turned), everything, own,
                   lane.scratch, lane.part);
      return lane.part;
    });
    scatter_output(lane.total, count, group, out + start * ldo + head * group * dim, ldo);
  });
}

// Few queries: the parts of all heads are shared out, their states merged afterwards in order.
void Cache::attend_parts(Worker& worker, size_t layer, const LayerView& view, size_t n, const float* q,
                         size_t ldq, float* out, size_t ldo) {
  const size_t n_kv_heads = view.layout->n_kv_heads;
  const size_t dim = view.layout->head_dim;
  const size_t group = geometry_.n_heads / n_kv_heads;
  const Parts parts(view, view.n_tokens, view.first_seen(view.n_tokens - n));
  const size_t n_rows = n * group;
  const bool selecting = selects(layer, view);
  if (worker.rank() == 0) {
    const size_t n_states = parts.size() * n_kv_heads;
    if (part_states_.size() < n_states) part_states_.resize(n_states, PartialState(n_rows, dim));
    head_queries_.resize(n_kv_heads);
    selection_ = Selection::all();
    if (selecting) begin_selection(view);
  }
  worker.barrier();
  worker.share(static_cast<int64_t>(n_kv_heads), 1, [&](int64_t item, int64_t) {
    const auto head = static_cast<size_t>(item);
    HeadQueries& own = head_queries_[head];
    const float* rows = q + head * group * dim;
    if (n > 1) {
      own.q.resize(n_rows * dim);
      gather_rows(rows, ldq, n, group * dim, own.q.data());
      rows = own.q.data();
    }
    own.rows = framed_queries(own.framed, parts, layer, head, {rows, n, group, view.n_tokens - n});
    if (selecting) select_rows(layer, view, head);
  });
  if (selecting && worker.rank() == 0) want_rows(layer, view, n);
  worker.share(static_cast<int64_t>(parts.size() * n_kv_heads), 1, [&](int64_t item, int64_t) {
    // Rows in a tier come page by page.
    const auto [outer, inner] =
        place_of(static_cast<size_t>(item), store_.tier() ? n_kv_heads : parts.size());
    const size_t head = store_.tier() ? inner : outer;
    const size_t index = store_.tier() ? outer : inner;
    PartialState& state = part_states_[head * parts.size() + index];
    const HeadFrames own = frames(layer, head);
    Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
    QueryRows turned{};
    attend_alone(view, head, parts[index], queries_of(parts[index], head_queries_[head].rows, lane, turned),
                 selection_, own, lane.scratch, state);
  });
  worker.share(static_cast<int64_t>(n_kv_heads), 1, [&](int64_t item, int64_t) {
    const auto head = static_cast<size_t>(item);
    Lane& lane = *lanes_[static_cast<size_t>(worker.rank())];
    merge_parts(lane, parts, layer, head, n_rows,
                [&](size_t i) -> const PartialState& { return part_states_[head * parts.size() + i]; });
    if (selecting && measures_mass_) measure_selection(lane, layer, view, head);
    scatter_output(lane.total, n, group, out + head * group * dim, ldo);
  });
  if (!selecting || worker.rank() != 0) return;
  count_selection(view);
  if (observer_ != nullptr) report_selection(layer, view);
}

// keep=window counts positions inside the cache: to it, sinks lie right before the oldest row of the window.
// Keys of the window keep their distance to the queries, so it is enough to turn the queries of the sinks.
void Cache::turn_to_sinks() {
  sink_shift_ = 0;
  if (!dropping_ || recipe_.keep.policy != Policy::kWindow || full_layer_ == geometry_.n_layers) return;
  const size_t n_left = store_.left_tokens(full_layer_);
  sink_shift_ = n_left - std::min(n_left, recipe_.sink_tokens);
  if (sink_shift_ == 0) return;
  QUIRE_CHECK(facts().rope_frequencies != nullptr);
  const RopeFrequencies& frequencies = *facts().rope_frequencies;
  sink_cosine_.resize(frequencies.size());
  sink_sine_.resize(frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = -static_cast<double>(sink_shift_) * frequencies[i];
    sink_cosine_[i] = static_cast<float>(std::cos(angle));
    sink_sine_[i] = static_cast<float>(std::sin(angle));
  }
}

// The queries as they stand to a part's keys.
const QueryRows& Cache::queries_of(const Parts::Part& part, const QueryRows& queries, Lane& lane,
                                   QueryRows& turned) const {
  if (part.kind != Parts::Kind::kSinks || sink_shift_ == 0) return queries;
  const size_t n_rows = queries.n_queries * queries.group;
  lane.turned.assign(queries.q, queries.q + n_rows * geometry_.head_dim);
  ops().rope(lane.turned.data(), static_cast<int>(n_rows), static_cast<int>(geometry_.head_dim),
             static_cast<int>(sink_cosine_.size()), sink_cosine_.data(), sink_sine_.data(), 1.0f);
  turned = queries;
  turned.q = lane.turned.data();
  return turned;
}

size_t Cache::span_tokens(size_t n_new) const {
  if (recipe_.keep.policy != Policy::kWindow || recipe_.coded) return n_tokens() + n_new;
  return std::min(n_tokens(), recipe_.sink_tokens + recipe_.keep.number("window")) + n_new;
}

// Of the sequence's own first tokens; what a model's calibration says is the model's.
uint64_t Cache::statistics_bytes() const {
  uint64_t total = 0;
  for (const PromptObserver& prompt : prompt_) {
    if (prompt.made) total += prompt.made->size_bytes();
  }
  return total;
}

uint64_t Cache::size_bytes() const {
  return store_.size_bytes() + selector_->size_bytes() + (dropping_ ? dropping_->size_bytes() : 0) +
         (reserving_ ? reserving_->size_bytes() : 0) + statistics_bytes() +
         (hot_ ? hot_->policy.size_bytes() : 0);
}

void Cache::end_step() {
  is_broken_ = false;
  end_fetching();
  if (reserving_ && due_pages() > 0) selector_->rows_moved();
  store_.commit(step_tokens_);
  if (reserving_) reserving_->end_step();
  if (key_reserving_) key_reserving_->end_step();
  stats_.n_tokens = n_tokens();
  placement_->plan(store_, stats_);
  if (!hot_) return;
  move_pages();
  end_fetching();
}

void Cache::restore(size_t n_tokens, std::span<const LayerContents> contents, const Store::Fill& fill) {
  store_.restore(n_tokens, contents, fill);
  if (key_reserving_ && full_layer_ < contents.size())
    key_reserving_->restore(contents[full_layer_].n_sealed);
}

void Cache::restore_reserving(std::vector<uint32_t> open) {
  const size_t n_pages =
      full_layer_ == geometry_.n_layers ? 0 : store_.view(full_layer_, n_tokens()).n_sealed();
  reserving_->restore(n_tokens(), n_pages, std::move(open));
}

Cache Cache::fork() const {
  Cache copy(statistics_, selector_->copy(), recipe_, geometry_, store_.pool(), store_.shared_tier());
  copy.store_ = store_.fork();
  copy.is_broken_ = is_broken_;
  copy.prompt_ = prompt_;
  if (dropping_) copy.dropping_.emplace(*dropping_);
  copy.reserving_ = reserving_;
  copy.key_reserving_ = key_reserving_;
  if (hot_) copy.hot_ = std::make_unique<HotRows>(*hot_);
  return copy;
}

}  // namespace quire
