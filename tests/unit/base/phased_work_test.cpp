#include "base/phased_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "base/team.h"

namespace quire {
namespace {

TEST(PhasedWork, NothingIsTakenBeforeItIsOpened) {
  PhasedWork work;
  work.plan(std::array<size_t, 1>{1});
  EXPECT_FALSE(work.take([](size_t, size_t) { FAIL(); }));
  EXPECT_FALSE(work.is_done());
  work.open();
  EXPECT_TRUE(work.take([](size_t, size_t) {}));
  EXPECT_TRUE(work.is_done());
  EXPECT_FALSE(work.take([](size_t, size_t) { FAIL(); }));
}

TEST(PhasedWork, PiecesComePhaseByPhaseAndEmptyPhasesArePassed) {
  PhasedWork work;
  work.plan(std::array<size_t, 6>{0, 2, 0, 0, 3, 0});
  work.open();
  std::vector<std::pair<size_t, size_t>> taken;
  while (work.take([&](size_t phase, size_t piece) { taken.emplace_back(phase, piece); })) {
  }
  EXPECT_EQ(taken, (std::vector<std::pair<size_t, size_t>>{{1, 0}, {1, 1}, {4, 0}, {4, 1}, {4, 2}}));
  EXPECT_TRUE(work.is_done());
}

TEST(PhasedWork, WithoutAnyPieceItIsDoneOnceOpen) {
  PhasedWork work;
  work.plan(std::array<size_t, 2>{0, 0});
  EXPECT_FALSE(work.is_done());
  work.open();
  EXPECT_TRUE(work.is_done());
}

TEST(PhasedWork, TheNextPhaseWaitsForPiecesThatAreUnderWay) {
  PhasedWork work;
  work.plan(std::array<size_t, 2>{2, 1});
  work.open();
  ASSERT_TRUE(work.take([&](size_t, size_t) {
    ASSERT_TRUE(work.take([](size_t phase, size_t piece) {
      EXPECT_EQ(std::pair(phase, piece), std::pair(size_t{0}, size_t{1}));
    }));
    EXPECT_FALSE(work.take([](size_t, size_t) { FAIL() << "the first piece is not done"; }));
  }));
  EXPECT_TRUE(work.take([](size_t phase, size_t) { EXPECT_EQ(phase, 1u); }));
}

TEST(PhasedWork, APieceThatThrowsIsNeverDone) {
  PhasedWork work;
  work.plan(std::array<size_t, 1>{1});
  work.open();
  EXPECT_THROW(work.take([](size_t, size_t) { throw std::runtime_error("broken"); }), std::runtime_error);
  EXPECT_TRUE(work.has_failed());
  EXPECT_FALSE(work.is_done());
  work.plan(std::array<size_t, 1>{0});
  EXPECT_FALSE(work.has_failed());
}

// As heads of a step do it: who finds nothing to take leaves for the barrier when somebody has failed.
TEST(PhasedWork, ATeamGetsOutOfWorkThatAThreadGivesUp) {
  Team team(4);
  std::array<PhasedWork, 3> works;
  std::atomic<int> n_done{0};
  const auto run = [&](size_t failing) {
    for (PhasedWork& work : works) {
      work.plan(std::array<size_t, 3>{1, 8, 1});
      work.open();
    }
    team.run([&](Worker& worker) {
      for (IdleTurn idle;;) {
        bool taken = false;
        for (size_t i = 0; i < works.size() && !taken; ++i) {
          taken = works[i].take([&](size_t phase, size_t piece) {
            if (i == failing && phase == 1 && piece == 5) throw std::runtime_error("broken");
            ++n_done;
          });
        }
        if (taken) {
          idle.reset();
          continue;
        }
        const auto all = [&](bool (PhasedWork::*is)() const) {
          return std::all_of(works.begin(), works.end(),
                             [&](const PhasedWork& work) { return (work.*is)(); });
        };
        const bool failed =
            std::any_of(works.begin(), works.end(), [](const PhasedWork& work) { return work.has_failed(); });
        if (all(&PhasedWork::is_done) || failed) break;
        idle.wait();
      }
      worker.barrier();
    });
  };
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(run(static_cast<size_t>(round) % works.size()), std::runtime_error);
    n_done = 0;
    run(works.size());
    EXPECT_EQ(n_done, 30);
  }
}

// Each piece adds up what the phase before wrote, unsynchronised but for the phases.
TEST(PhasedWork, ThreadsSeeWhatTheLastPhaseWrote) {
  constexpr size_t kPieces = 37;
  constexpr size_t kPhases = 7;
  Team team(4);
  PhasedWork work;
  for (int round = 0; round < 50; ++round) {
    std::array<size_t, kPhases> sizes;
    sizes.fill(kPieces);
    sizes[3] = 1;
    work.plan(sizes);
    work.open();
    std::array<std::array<uint64_t, kPieces>, kPhases> written{};
    team.run([&](Worker& worker) {
      for (IdleTurn idle; !work.is_done();) {
        const bool taken = work.take([&](size_t phase, size_t piece) {
          const auto before =
              phase == 0
                  ? 1
                  : std::accumulate(written[phase - 1].begin(), written[phase - 1].end(), uint64_t{0}) % 1000;
          written[phase][piece] += before + piece;
        });
        if (taken)
          idle.reset();
        else
          idle.wait();
      }
      worker.barrier();
    });
    uint64_t sum = 1;
    for (size_t phase = 0; phase < kPhases; ++phase) {
      uint64_t next = 0;
      for (size_t piece = 0; piece < sizes[phase]; ++piece) next += sum + piece;
      EXPECT_EQ(std::accumulate(written[phase].begin(), written[phase].end(), uint64_t{0}), next)
          << "phase " << phase;
      sum = next % 1000;
    }
  }
}

}  // namespace
}  // namespace quire
