#include "study/coref.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "study/coref_text.h"
#include "study/stepper.h"

namespace quire {
namespace {

using Tokens = std::vector<int32_t>;

// An item in tokens; the location is text[location .. location + name.size() - 1].
struct Item {
  Tokens text;
  Tokens question;
  Tokens name;
  size_t location = 0;
};

// The prelude is whole sentences, as many as put the name behind kCorefNameRow rows. Fillers are whole
// sentences too, as many of each subject as fit into its third of the room.
Item encode(const Tokenizer& tokenizer, const CorefItem& given, size_t most_tokens) {
  const auto tokens_of = [&](std::string_view text) {
    return tokenizer.encode(text, ControlTokens::kAsText);
  };
  Item item;
  const auto add = [&](const Tokens& more) { item.text.insert(item.text.end(), more.begin(), more.end()); };
  if (tokenizer.add_bos() && tokenizer.bos_id()) item.text.push_back(*tokenizer.bos_id());
  const size_t n_begin = item.text.size();
  item.question = tokens_of(given.question);
  item.name = tokens_of(given.name);
  const Tokens lead = tokens_of(std::string(" ").append(given.lead));
  for (const std::string_view sentence : given.prelude) {
    if (item.text.size() + lead.size() >= kCorefNameRow) break;
    add(tokens_of(item.text.size() <= n_begin ? std::string(sentence) : std::string(" ").append(sentence)));
  }
  add(lead);
  item.location = item.text.size();
  if (item.location < kCorefNameRow) {
    throw Error("the name of an item of the task begins at row " + std::to_string(item.location) +
                ", and has to begin behind the first " + std::to_string(kCorefNameRow));
  }
  add(item.name);
  add(tokens_of("."));
  const size_t n_fixed = item.text.size() + item.question.size() + item.name.size();
  if (n_fixed > most_tokens) {
    throw Error("an item of the task needs more than " + std::to_string(most_tokens) + " tokens");
  }
  const size_t n_room = (most_tokens - n_fixed) / given.fillers.size();
  for (const std::vector<std::string_view>& sentences : given.fillers) {
    size_t n_used = 0;
    for (const std::string_view sentence : sentences) {
      const Tokens tokens = tokens_of(std::string(" ").append(sentence));
      if (n_used + tokens.size() > n_room) break;
      n_used += tokens.size();
      add(tokens);
    }
  }
  return item;
}

// What the answer step reads of the location. Pairs that read everything are no merit of the recipe's choice:
// they count where all do, and in the number of rows.
class LocationReads : public ReadObserver {
 public:
  explicit LocationReads(const Item& item)
      : first_(item.location),
        last_(item.location + item.name.size()),
        n_tokens_(item.text.size() + item.question.size()) {}

  void read(size_t, size_t, std::span<const uint32_t> positions) override {
    ++n_pairs_;
    n_rows_ += positions.size();
    if (positions.size() == n_tokens_) return;
    size_t n = 0;
    for (const uint32_t position : positions) n += position >= first_ && position < last_;
    ++n_sparse_;
    n_whole_ += n == last_ - first_;
    n_found_ += n;
  }

  double accuracy() const {
    return n_sparse_ == 0 ? 1 : static_cast<double>(n_whole_) / static_cast<double>(n_sparse_);
  }
  double coverage() const {
    return n_sparse_ == 0 ? 1
                          : static_cast<double>(n_found_) / static_cast<double>(n_sparse_ * (last_ - first_));
  }
  double rows_per_pair() const { return static_cast<double>(n_rows_) / static_cast<double>(n_pairs_); }

 private:
  size_t first_;
  size_t last_;
  size_t n_tokens_;
  size_t n_pairs_ = 0;
  size_t n_sparse_ = 0;  // pairs where rows are left out
  size_t n_whole_ = 0;
  size_t n_found_ = 0;
  size_t n_rows_ = 0;
};

// 1 for the most likely token.
size_t rank_of(std::span<const float> logits, int32_t token) {
  const float own = logits[static_cast<size_t>(token)];
  return 1 +
         static_cast<size_t>(std::count_if(logits.begin(), logits.end(), [own](float x) { return x > own; }));
}

// Sums over items.
struct CorefRun {
  Recipe recipe;
  double accuracy = 0;
  double coverage = 0;
  double read = 0;
  double log_rank = 0;
  double nll = 0;
};

class CorefMeasurement {
 public:
  CorefMeasurement(Engine& engine, const CorefOptions& options) : stepper_(engine), engine_(engine) {
    run_of(Recipe{});
    for (const Recipe& recipe : options.recipes) rows_.push_back(run_of(recipe));
  }

  size_t n_runs() const { return runs_.size(); }

  void add(const Item& item) {
    ++n_items_;
    n_tokens_ += item.text.size() + item.question.size();
    n_name_tokens_ += item.name.size();
  }

  void ask(size_t run, const Item& item) {
    CorefRun& own = runs_[run];
    Cache cache = engine_.make_cache(own.recipe);
    CacheTally tally;
    stepper_.prefill(cache, item.text);
    const std::span<const int32_t> question(item.question);
    if (question.size() > 1) stepper_.decode(cache, question.first(question.size() - 1), tally);
    LocationReads reads(item);
    cache.observe_reads(&reads);
    stepper_.decode(cache, question.last(1), tally);
    cache.observe_reads(nullptr);
    own.accuracy += reads.accuracy();
    own.coverage += reads.coverage();
    own.read += reads.rows_per_pair() / static_cast<double>(item.text.size() + item.question.size());
    own.log_rank += std::log(static_cast<double>(rank_of(stepper_.logits(), item.name[0])));
    own.nll += stepper_.score(cache, item.name, tally).nll;
  }

  std::vector<Coref> rows() const {
    std::vector<Coref> all;
    for (const size_t run : rows_) all.push_back(row(runs_[run]));
    return all;
  }

 private:
  size_t run_of(const Recipe& recipe) {
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].recipe == recipe) return i;
    }
    runs_.push_back({recipe});
    return runs_.size() - 1;
  }

  Coref row(const CorefRun& run) const {
    const auto n = static_cast<double>(n_items_);
    const auto n_name = static_cast<double>(n_name_tokens_);
    Coref row;
    row.recipe = run.recipe;
    row.accuracy = run.accuracy / n;
    row.coverage = run.coverage / n;
    row.read = run.read / n;
    row.rank = std::exp(run.log_rank / n);
    row.rank_full = std::exp(runs_[0].log_rank / n);
    row.nll = run.nll / n_name;
    row.nll_full = runs_[0].nll / n_name;
    row.tokens = static_cast<double>(n_tokens_) / n;
    row.location_tokens = n_name / n;
    return row;
  }

  Stepper stepper_;
  Engine& engine_;
  std::vector<CorefRun> runs_;  // the first is `full`
  std::vector<size_t> rows_;    // [recipe asked for] its run
  size_t n_items_ = 0;
  size_t n_tokens_ = 0;
  size_t n_name_tokens_ = 0;
};

}  // namespace

std::vector<Coref> measure_coref(Engine& engine, const CorefOptions& options) {
  if (options.recipes.empty()) throw Error("there is no recipe to compare");
  if (options.n_items == 0 || options.n_items > kMostCorefItems ||
      options.first_item > kMostCorefItems - options.n_items) {
    throw Error("there are 1 to " + std::to_string(kMostCorefItems) + " items, not " +
                std::to_string(options.n_items) + " behind " + std::to_string(options.first_item));
  }
  const size_t most_tokens = std::min(options.most_tokens, engine.config().context_tokens);
  std::vector<Item> items;
  const auto made = make_coref_items(options.seed, options.first_item + options.n_items);
  for (size_t i = options.first_item; i < made.size(); ++i) {
    items.push_back(encode(engine.tokenizer(), made[i], most_tokens));
  }
  CorefMeasurement measurement(engine, options);
  const size_t n_all = items.size() * measurement.n_runs();
  size_t n_done = 0;
  for (const Item& item : items) {
    measurement.add(item);
    for (size_t run = 0; run < measurement.n_runs(); ++run) {
      measurement.ask(run, item);
      if (options.progress) options.progress(static_cast<double>(++n_done) / static_cast<double>(n_all));
    }
  }
  return measurement.rows();
}

}  // namespace quire
