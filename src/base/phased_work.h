// Work in phases, whose pieces any member of a team takes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>

#include "base/error.h"

namespace quire {

// A chain of phases of so many pieces each: the next one opens when every piece of the one before is done.
// Unlike Worker::share() nobody has to wait for that: who finds nothing to take here can go on with something
// else.
class alignas(64) PhasedWork {
 public:
  static constexpr size_t kMostPhases = 8;

  // By one member, while no other looks. Phases may be empty. Nothing can be taken until it is opened.
  void plan(std::span<const size_t> n_pieces) {
    QUIRE_CHECK(n_pieces.size() <= kMostPhases);
    n_phases_ = n_pieces.size();
    for (size_t i = 0; i < n_phases_; ++i) {
      n_[i] = n_pieces[i];
      next_[i].store(0, std::memory_order_relaxed);
      left_[i].store(n_pieces[i], std::memory_order_relaxed);
    }
    failed_.store(false, std::memory_order_relaxed);
    open_.store(kClosed, std::memory_order_relaxed);
  }

  // Once. What was written before it is seen by whoever takes a piece.
  void open() { open_from(0); }

  bool is_done() const { return open_.load(std::memory_order_acquire) == n_phases_; }
  // A piece has thrown: the rest may never be done.
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }

  // Runs work(phase, piece) for one piece of the phase that is open; false where there is none to take now.
  // What pieces of a phase write is seen by those of the next.
  template <typename Work>
  bool take(const Work& work) {
    const size_t phase = open_.load(std::memory_order_acquire);
    if (phase >= n_phases_ || next_[phase].load(std::memory_order_relaxed) >= n_[phase]) return false;
    const size_t piece = next_[phase].fetch_add(1, std::memory_order_relaxed);
    if (piece >= n_[phase]) return false;
    try {
      work(phase, piece);
    } catch (...) {
      failed_.store(true, std::memory_order_release);
      throw;
    }
    if (left_[phase].fetch_sub(1, std::memory_order_acq_rel) == 1) open_from(phase + 1);
    return true;
  }

 private:
  static constexpr size_t kClosed = ~size_t{0};

  void open_from(size_t phase) {
    while (phase < n_phases_ && n_[phase] == 0) ++phase;
    open_.store(phase, std::memory_order_release);
  }

  std::atomic<size_t> open_{kClosed};  // the phase whose pieces can be taken; n_phases_: all are done
  std::atomic<bool> failed_{false};
  size_t n_phases_ = 0;
  std::array<size_t, kMostPhases> n_{};
  std::array<std::atomic<size_t>, kMostPhases> next_{};  // piece to take
  std::array<std::atomic<size_t>, kMostPhases> left_{};  // pieces that are not done
};

// For who has nothing to take: spins briefly, as pieces last microseconds, and then sleeps, as cores may be
// shared and a piece may wait for a disk.
class IdleTurn {
 public:
  void wait() {
    if (++n_ < kSpins) {
      __builtin_ia32_pause();
    } else if (n_ < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void reset() { n_ = 0; }

 private:
  static constexpr int kSpins = 2000;  // about 50 us
  static constexpr int kYields = 100;
  int n_ = 0;
};

}  // namespace quire
