#include "base/team.h"

#include <utility>

#include "base/error.h"

namespace quire {

namespace {

// About 50 us of pauses: longer than a phase, shorter than a time slice.
constexpr int kSpins = 2000;

// Takes a member out of the work that another one has given up. No std::exception, so that nobody who handles
// errors on the way takes it for one.
struct GivenUp {};

void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    __builtin_ia32_pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

int Worker::size() const { return team_.n_threads_; }

void Worker::barrier() {
  if (team_.n_threads_ > 1) team_.arrive();
}

Team::Team(int n_threads) : n_threads_(n_threads) {
  QUIRE_CHECK(n_threads >= 1);
  for (int rank = 1; rank < n_threads; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
}

Team::~Team() {
  stopping_ = true;
  run_number_.fetch_add(1, std::memory_order_release);
  run_number_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(const std::function<void(Worker&)>& work) {
  work_ = &work;
  if (n_threads_ == 1) {
    Worker self(*this, 0);
    return work(self);
  }
  run_number_.fetch_add(1, std::memory_order_release);
  run_number_.notify_all();
  act(0);
  wait_for_others();
  if (!failed_.load(std::memory_order_relaxed)) return;
  n_arrived_.store(0, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(error_, nullptr));
}

void Team::act(int rank) {
  try {
    Worker self(*this, rank);
    (*work_)(self);
  } catch (const GivenUp&) {
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_acq_rel)) error_ = std::current_exception();
    give_up();
  }
}

// Wakes whoever waits for this member. The phase cannot end by itself meanwhile, as it has not arrived.
void Team::give_up() {
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
}

void Team::wait_for_others() {
  const auto n_others = static_cast<uint32_t>(n_threads_) - 1;
  for (uint32_t n = n_done_.load(std::memory_order_acquire); n != n_others;) {
    wait_while_equal(n_done_, n);
    n = n_done_.load(std::memory_order_acquire);
  }
  n_done_.store(0, std::memory_order_relaxed);
}

void Team::serve(int rank) {
  for (uint32_t seen = 0;; ++seen) {
    wait_while_equal(run_number_, seen);
    if (stopping_) return;
    act(rank);
    n_done_.fetch_add(1, std::memory_order_release);
    n_done_.notify_one();
  }
}

// The last to arrive resets the hand-out counter and opens the next phase.
void Team::arrive() {
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (failed_.load(std::memory_order_relaxed)) throw GivenUp{};
  if (n_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    n_arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_while_equal(phase_, phase);
    if (failed_.load(std::memory_order_relaxed)) throw GivenUp{};
  }
}

}  // namespace quire
