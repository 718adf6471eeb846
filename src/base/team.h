// A small team of threads that walks through a computation together, phase by phase.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace quire {

class Team;

// One member, as seen by the function that all members run.
class Worker {
 public:
  int rank() const { return rank_; }
  int size() const;

  // Waits until every member is here. Does not return where one has thrown (see Team::run).
  void barrier();

  // Runs f(begin, end) over [0, n) in pieces of `grain`, handed out to whoever is free, and waits until all
  // are done. Every member calls it with the same n and grain. Who computes a piece must not matter.
  template <typename F>
  void share(int64_t n, int64_t grain, const F& f);

 private:
  friend class Team;
  Worker(Team& team, int rank) : team_(team), rank_(rank) {}

  Team& team_;
  int rank_;
};

// Owns size - 1 threads; the caller of run() is the remaining member. One run at a time, from one thread.
// Waiting members spin briefly, as phases last microseconds, and then sleep, as cores may be shared.
class Team {
 public:
  explicit Team(int n_threads);  // at least 1
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return n_threads_; }

  // Every member runs `work` once; returns when all have. Where it throws on a member, the others end at
  // their next barrier, whatever they hold is destroyed, and the first exception is thrown from here: what
  // the work was to make is then half made. The team itself can be used again.
  void run(const std::function<void(Worker&)>& work);

 private:
  friend class Worker;

  void serve(int rank);
  void act(int rank);
  void arrive();
  void give_up();
  void wait_for_others();

  const int n_threads_;
  std::vector<std::thread> threads_;
  const std::function<void(Worker&)>* work_ = nullptr;
  // Each on its own cache line: they are written by all members.
  alignas(64) std::atomic<uint32_t> run_number_{0};
  alignas(64) std::atomic<int> n_arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> n_done_{0};  // members but the caller that are through with a run
  std::atomic<bool> failed_{false};              // somebody has thrown in this run
  std::exception_ptr error_;                     // what: written by the first alone
  bool stopping_ = false;
};

template <typename F>
void Worker::share(int64_t n, int64_t grain, const F& f) {
  if (team_.n_threads_ == 1) {
    for (int64_t i = 0; i < n; i += grain) f(i, i + grain < n ? i + grain : n);
    return;
  }
  while (true) {
    const int64_t i = team_.next_.fetch_add(grain, std::memory_order_relaxed);
    if (i >= n) break;
    f(i, i + grain < n ? i + grain : n);
  }
  team_.arrive();
}

}  // namespace quire
