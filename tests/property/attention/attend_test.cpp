// Attention over pages against double precision (law 1), over the shapes, formats and lengths there are.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "property/attention/scene.h"

namespace quire::test {
namespace {

constexpr size_t kHeadSizes[] = {40, 64, 72, 80, 96, 100, 112, 128, 256};
constexpr size_t kLengths[] = {0, 1, 15, 16, 17, 63, 64, 65, 255, 257, 700};

Format format_of(size_t i) { return kFormats[i % std::size(kFormats)].format; }

void check(const Scene& scene) {
  for (size_t head = 0; head < scene.layout().n_kv_heads; ++head) {
    const double error = largest_error(scene, head, scene.attend(head, Selection::all()), everything);
    ASSERT_LE(error, kAttentionError) << scene.name() << " head " << head;
  }
}

// Every head size with every length; formats, groups and query counts take turns.
TEST(Attend, EveryHeadSizeAndLength) {
  size_t turn = 0;
  for (const size_t head_dim : kHeadSizes) {
    for (const size_t n_tokens : kLengths) {
      const RowLayout layout{2, head_dim, format_of(turn), format_of(turn / 3)};
      check(Scene(layout, n_tokens, 1 + turn % 9,
                  std::max<size_t>(1, std::min<size_t>(n_tokens, 1 + turn % 5)), 1000 + turn));
      if (HasFatalFailure()) return;
      ++turn;
    }
  }
}

TEST(Attend, EveryPairOfFormatsAndGroup) {
  for (size_t formats = 0; formats < 9; ++formats) {
    for (size_t group = 1; group <= 9; ++group) {
      const RowLayout layout{1, group % 2 == 0 ? 64u : 40u, format_of(formats), format_of(formats / 3)};
      check(Scene(layout, 130, group, 1 + group % 3, 2000 + formats * 9 + group));
      if (HasFatalFailure()) return;
    }
  }
}

// Across the count from which pages are expanded first, and whole prompts with their causal masks.
TEST(Attend, EveryQueryCount) {
  for (size_t n_queries = 1; n_queries <= 40; ++n_queries) {
    const RowLayout layout{1, 64, format_of(n_queries), format_of(n_queries + 1)};
    check(Scene(layout, 150, 1 + n_queries % 3, n_queries, 3000 + n_queries));
    check(Scene(layout, n_queries, 1, n_queries, 4000 + n_queries));
    if (HasFatalFailure()) return;
  }
}

// The same query alone and in a tile of 40, expanded pages or not: equal in every bit.
TEST(Attend, AQueryGetsTheSameOutputInEveryTile) {
  for (const size_t head_dim : kHeadSizes) {
    for (size_t formats = 0; formats < 9; formats += 2) {
      const RowLayout layout{1, head_dim, format_of(formats), format_of(formats / 3)};
      const Scene tile(layout, 300, 2, 40, 5000 + head_dim);
      const std::vector<float> together = outputs(tile.attend(0, Selection::all()));
      AttendScratch scratch;
      for (size_t query = 0; query < 40; query += 7) {
        PartialState total(2, head_dim);
        for (size_t run = 0; run < runs_for(300); ++run) {
          PartialState state(2, head_dim);
          QueryRows one = tile.queries(0);
          one.q += query * 2 * head_dim;
          one.n_queries = 1;
          one.first_position += query;
          attend_run(tile.view(), 0, run, one, Selection::all(), scratch, state);
          total.merge(state);
        }
        const std::vector<float> alone = outputs(total);
        for (size_t i = 0; i < alone.size(); ++i) {
          ASSERT_EQ(alone[i], together[query * 2 * head_dim + i])
              << tile.name() << " query " << query << " at " << i;
        }
      }
    }
  }
}

// A scratch that served large tiles serves small ones, and the other way round.
TEST(Attend, AScratchIsReusable) {
  const RowLayout layout{1, 80, Format::kF16, Format::kBF16};
  AttendScratch used;
  for (const size_t n_queries : {1, 40, 3, 20, 1}) {
    const Scene scene(layout, 90, 2, n_queries, 6000 + n_queries);
    PartialState first(scene.n_rows(), 80);
    PartialState second(scene.n_rows(), 80);
    AttendScratch fresh;
    attend_run(scene.view(), 0, 0, scene.queries(0), Selection::all(), used, first);
    attend_run(scene.view(), 0, 0, scene.queries(0), Selection::all(), fresh, second);
    ASSERT_EQ(outputs(first), outputs(second));
  }
}

}  // namespace
}  // namespace quire::test
