// Random sequences of operations on stores that share one pool, against plain vectors: no token is lost,
// doubled or seen by another sequence, and every byte is accounted for.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "property/rapid.h"
#include "property/store/sequence_model.h"

namespace quire::test {
namespace {

enum class Operation { kExtend, kCommit, kAppend, kCrop, kFork, kDrop, kLast };

struct Step {
  Operation operation;
  uint32_t which;  // sequence
  uint32_t amount;
};

void showValue(const Step& step, std::ostream& out) {
  static const char* const kNames[] = {"extend", "commit", "append", "crop", "fork", "drop"};
  out << kNames[static_cast<size_t>(step.operation)] << "(" << step.which << ", " << step.amount << ")";
}

rc::Gen<Step> any_step() {
  return rc::gen::build<Step>(
      rc::gen::set(&Step::operation, rc::gen::map(rc::gen::inRange(0, static_cast<int>(Operation::kLast)),
                                                  [](int i) { return static_cast<Operation>(i); })),
      rc::gen::set(&Step::which, rc::gen::inRange<uint32_t>(0, 64)),
      rc::gen::set(&Step::amount,
                   rc::gen::weightedElement<uint32_t>(
                       {{4, 1}, {2, 2}, {2, 5}, {1, 63}, {1, 64}, {1, 65}, {1, 100}, {1, 130}})));
}

// What the run covered, so that a generator gone dull fails the test.
struct Coverage {
  int appends = 0;
  int forks = 0;
  int crops_inside = 0;
  int refusals = 0;
};

class World {
 public:
  World(uint64_t budget_bytes, Coverage& coverage) : pool_(budget_bytes), coverage_(coverage) {
    add_sequence();
  }

  void apply(const Step& step) {
    if (sequences_.empty()) add_sequence();
    const size_t which = step.which % sequences_.size();
    Sequence& sequence = *sequences_[which];
    switch (step.operation) {
      case Operation::kExtend: extend(sequence, step.amount); break;
      case Operation::kCommit: commit(sequence, step.amount); break;
      case Operation::kAppend:
        if (extend(sequence, step.amount)) commit(sequence, step.amount);
        break;
      case Operation::kCrop: crop(sequence, step.amount); break;
      case Operation::kFork: fork(sequence); break;
      case Operation::kDrop: sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(which)); break;
      case Operation::kLast: break;
    }
  }

  void check() const {
    for (const auto& sequence : sequences_) {
      RC_ASSERT(sequence->store.n_tokens() == sequence->tags.size());
      RC_ASSERT(first_difference(*sequence) == std::string());
      uint64_t bytes = 0;
      for (size_t layer = 0; layer < sequence->store.n_layers(); ++layer) {
        const LayerView view = sequence->store.view(layer, sequence->tags.size());
        RC_ASSERT(view.pages.size() * kTokensPerPage >= sequence->tags.size() + sequence->room_tokens);
        bytes += view.pages.size() * view.layout->page_bytes();
      }
      RC_ASSERT(sequence->store.size_bytes() == bytes);
    }
    RC_ASSERT(pool_.used_bytes() == distinct_page_bytes(sequences_));
    RC_ASSERT(pool_.reserved_bytes() >= pool_.used_bytes());
    if (pool_.budget_bytes() != 0) RC_ASSERT(pool_.used_bytes() <= pool_.budget_bytes());
  }

  void drop_all() { sequences_.clear(); }
  const PagePool& pool() const { return pool_; }

 private:
  void add_sequence() {
    sequences_.push_back(std::make_unique<Sequence>(Sequence{Store(two_layouts(), pool_), {}}));
  }

  // False when the budget refused, in which case nothing may have changed.
  bool extend(Sequence& sequence, size_t n) {
    const uint64_t used = pool_.used_bytes();
    const uint64_t bytes = sequence.store.size_bytes();
    try {
      sequence.store.extend(n);
    } catch (const Error&) {
      RC_ASSERT(pool_.budget_bytes() != 0);
      RC_ASSERT(pool_.used_bytes() == used);
      RC_ASSERT(sequence.store.size_bytes() == bytes);
      ++coverage_.refusals;
      return false;
    }
    sequence.room_tokens = std::max(sequence.room_tokens, n);
    return true;
  }

  // Writes and commits up to n tokens of the room there is.
  void commit(Sequence& sequence, size_t n) {
    n = std::min(n, sequence.room_tokens);
    // Room that was made before a fork may be shared: extend() is what makes it writable.
    if (!extend(sequence, n)) return;
    for (size_t i = 0; i < n; ++i) {
      write_token(sequence.store, sequence.tags.size() + i, next_tag_);
      pending_.push_back(next_tag_++);
    }
    sequence.store.commit(n);
    sequence.tags.insert(sequence.tags.end(), pending_.begin(), pending_.end());
    pending_.clear();
    sequence.room_tokens -= n;
    coverage_.appends += n > 0;
  }

  void crop(Sequence& sequence, size_t amount) {
    const size_t left = sequence.tags.size() - std::min<size_t>(amount, sequence.tags.size());
    sequence.store.crop(left);
    coverage_.crops_inside += left % kTokensPerPage != 0;
    sequence.tags.resize(left);
    sequence.room_tokens = 0;
  }

  void fork(Sequence& sequence) {
    if (sequences_.size() >= 6) return;
    auto copy =
        std::make_unique<Sequence>(Sequence{sequence.store.fork(), sequence.tags, sequence.room_tokens});
    // A fork takes no memory: all pages are shared until written.
    RC_ASSERT(copy->store.size_bytes() == sequence.store.size_bytes());
    sequences_.push_back(std::move(copy));
    ++coverage_.forks;
  }

  PagePool pool_;
  Coverage& coverage_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<uint32_t> pending_;
  uint32_t next_tag_ = 1;
};

void run(uint64_t budget_bytes, Coverage& coverage) {
  const auto steps = *rc::gen::scale(2.0, rc::gen::container<std::vector<Step>>(any_step()));
  World world(budget_bytes, coverage);
  for (const Step& step : steps) {
    world.apply(step);
    world.check();
  }
  world.drop_all();
  RC_ASSERT(world.pool().used_bytes() == 0u);
}

TEST(StoreOperations, AgreeWithPlainVectors) {
  Coverage coverage;
  EXPECT_TRUE(rc::check("without a budget", [&] { run(0, coverage); }));
  EXPECT_GT(coverage.appends, 200);
  EXPECT_GT(coverage.forks, 100);
  EXPECT_GT(coverage.crops_inside, 50);
}

TEST(StoreOperations, ARefusedStepChangesNothing) {
  Coverage coverage;
  uint64_t token_page_bytes = 0;  // a page on every layer
  for (const RowLayout& layout : two_layouts()) token_page_bytes += layout.page_bytes();
  EXPECT_TRUE(rc::check("with a budget of five pages", [&] { run(5 * token_page_bytes, coverage); }));
  EXPECT_GT(coverage.refusals, 100);
  EXPECT_GT(coverage.appends, 100);
}

}  // namespace
}  // namespace quire::test
