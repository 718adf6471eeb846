// The team: every piece is done once, barriers hold, and many short phases and runs do not lose a wake-up.
// These run under ThreadSanitizer too.
#include "base/team.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace quire::test {
namespace {

class TeamOf : public testing::TestWithParam<int> {};

TEST_P(TeamOf, EveryMemberRunsOnce) {
  Team team(GetParam());
  ASSERT_EQ(team.size(), GetParam());
  for (int round = 0; round < 100; ++round) {
    std::vector<int> ran(static_cast<size_t>(GetParam()), 0);
    team.run([&](Worker& worker) {
      ASSERT_EQ(worker.size(), GetParam());
      ++ran[static_cast<size_t>(worker.rank())];
    });
    ASSERT_EQ(ran, std::vector<int>(static_cast<size_t>(GetParam()), 1));
  }
}

// What a member throws comes out of run(), wherever the others are then, and the team goes on.
TEST_P(TeamOf, WhatAMemberThrowsEndsTheRunOfAll) {
  Team team(GetParam());
  for (int round = 0; round < 60; ++round) {
    const int thrower = round % GetParam();
    const int phase = round / GetParam() % 5;
    std::atomic<int> n_ended{0};
    const auto work = [&](Worker& worker) {
      for (int i = 0; i < 5; ++i) {
        if (worker.rank() == thrower && i == phase) throw Error("phase " + std::to_string(i));
        if (i % 2 == 0) worker.barrier();
        if (i % 2 != 0) worker.share(100, 1, [](int64_t, int64_t) {});
      }
      ++n_ended;
    };
    try {
      team.run(work);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      ASSERT_EQ(error.what(), "phase " + std::to_string(phase));
    }
    ASSERT_EQ(n_ended, 0) << "a barrier was passed without the member";
    std::atomic<int64_t> sum{0};
    team.run([&](Worker& worker) {
      worker.share(1000, 7, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sum += i;
      });
    });
    ASSERT_EQ(sum, 999 * 500);
  }
}

TEST_P(TeamOf, AllMayThrowAtOnce) {
  Team team(GetParam());
  for (int round = 0; round < 200; ++round) {
    EXPECT_THROW(team.run([&](Worker& worker) {
      if (round % 2 == 0) worker.barrier();
      throw Error("no");
    }),
                 Error);
  }
}

TEST_P(TeamOf, TheCallerIsAMember) {
  Team team(GetParam());
  const std::thread::id caller = std::this_thread::get_id();
  std::thread::id first;
  team.run([&](Worker& worker) {
    if (worker.rank() == 0) first = std::this_thread::get_id();
  });
  EXPECT_EQ(first, caller);
}

// Every index is handed out once, in pieces of the grain with a shorter last one.
TEST_P(TeamOf, ShareCoversEachIndexOnce) {
  Team team(GetParam());
  for (const int64_t n : {0, 1, 2, 7, 8, 9, 64, 1000}) {
    for (const int64_t grain : {1, 3, 8, 1000}) {
      std::vector<int> done(static_cast<size_t>(n), 0);  // plain: pieces do not overlap
      std::atomic<int64_t> wrong_pieces{0};
      team.run([&](Worker& worker) {
        worker.share(n, grain, [&](int64_t begin, int64_t end) {
          if (begin % grain != 0 || end != std::min(n, begin + grain)) ++wrong_pieces;
          for (int64_t i = begin; i < end; ++i) ++done[static_cast<size_t>(i)];
        });
      });
      ASSERT_EQ(wrong_pieces, 0) << n << " by " << grain;
      ASSERT_EQ(done, std::vector<int>(static_cast<size_t>(n), 1)) << n << " by " << grain;
    }
  }
}

// What a phase wrote, by whomever, the next one reads: plain memory, so a missing barrier is a race.
TEST_P(TeamOf, PhasesSeeEachOthersResults) {
  Team team(GetParam());
  constexpr int kPhases = 400;
  constexpr size_t kN = 13;
  std::vector<uint64_t> a(kN, 1);
  std::vector<uint64_t> b(kN, 0);
  team.run([&](Worker& worker) {
    for (int phase = 0; phase < kPhases; ++phase) {
      std::vector<uint64_t>& from = phase % 2 == 0 ? a : b;
      std::vector<uint64_t>& to = phase % 2 == 0 ? b : a;
      worker.share(kN, 1, [&](int64_t i, int64_t) {
        to[static_cast<size_t>(i)] = from[static_cast<size_t>(i)] * 3 + from[static_cast<size_t>(i + 1) % kN];
      });
    }
  });
  std::vector<uint64_t> x(kN, 1);
  for (int phase = 0; phase < kPhases; ++phase) {
    std::vector<uint64_t> y(kN);
    for (size_t i = 0; i < kN; ++i) y[i] = x[i] * 3 + x[(i + 1) % kN];
    x = y;
  }
  EXPECT_EQ(kPhases % 2 == 0 ? a : b, x);
}

// The model's pattern: one member prepares, all wait, all share, and barriers come between shares.
TEST_P(TeamOf, BarriersAndSharesMix) {
  Team team(GetParam());
  int64_t prepared = 0;
  std::vector<int64_t> seen(64, -1);
  int64_t mistakes = 0;
  team.run([&](Worker& worker) {
    for (int64_t phase = 0; phase < 200; ++phase) {
      if (worker.rank() == 0) prepared = phase;
      worker.barrier();
      worker.share(64, 5, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)] = prepared;
      });
      if (worker.rank() == worker.size() - 1) {
        for (const int64_t value : seen) mistakes += value != phase;
      }
      worker.barrier();
    }
  });
  EXPECT_EQ(mistakes, 0);
}

TEST_P(TeamOf, ManyRunsInSequence) {
  Team team(GetParam());
  int64_t total = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<int64_t> parts(static_cast<size_t>(GetParam()), 0);
    team.run([&](Worker& worker) {
      worker.share(10, 1, [&](int64_t i, int64_t) { parts[static_cast<size_t>(worker.rank())] += i; });
    });
    total += std::accumulate(parts.begin(), parts.end(), int64_t{0});
  }
  EXPECT_EQ(total, 400 * 45);
}

// Members that waited so long that they sleep are woken.
TEST_P(TeamOf, SleepersWakeUp) {
  Team team(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> n{0};
    team.run([&](Worker& worker) {
      if (worker.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      worker.barrier();
      ++n;
      if (worker.rank() == worker.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    });
    ASSERT_EQ(n, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, TeamOf, testing::Range(1, 9));

TEST(Team, ComesAndGoes) {
  for (int round = 0; round < 50; ++round) {
    Team idle(1 + round % 4);  // never runs anything
    Team team(1 + round % 5);
    std::atomic<int> n{0};
    if (round % 2 == 0) team.run([&](Worker&) { ++n; });
    ASSERT_EQ(n, round % 2 == 0 ? team.size() : 0);
  }
}

TEST(Team, TwoTeamsFromTwoThreads) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&] {
      Team team(3);
      for (int round = 0; round < 300; ++round) {
        team.run([&](Worker& worker) { worker.share(20, 3, [&](int64_t a, int64_t b) { total += b - a; }); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 2 * 300 * 20);
}

}  // namespace
}  // namespace quire::test
