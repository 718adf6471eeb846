// A selection cuts coded pages and sinks as it cuts open ones: random words of all densities.
#include <gtest/gtest.h>

#include "attention/attend.h"
#include "property/sealed/scene.h"

namespace quire::test {
namespace {

// One layer, filled and coded as a cache does it, attended part by part.
struct Layer {
  Layer(const Prompt& prompt_, const Recipe& recipe_)
      : prompt(prompt_),
        recipe(recipe_),
        statistics(recipe_, prompt_.shape, {}),
        store(layer_layouts(recipe_, prompt_.shape), pool) {
    poison(pool, recipe, prompt.shape, prompt.n_tokens);
    store.extend(prompt.n_tokens);
    const size_t dim = prompt.shape.head_dim;
    const size_t n_heads = prompt.shape.n_kv_heads[0];
    for (size_t head = 0; head < n_heads; ++head) {
      store.write(0, head, 0, prompt.n_tokens, prompt.k[0].data() + head * dim,
                  prompt.v[0].data() + head * dim, n_heads * dim);
    }
    Store::Sealing sealing = store.begin_sealing(0, prompt.n_tokens);
    for (size_t page = sealing.first; page < sealing.last; ++page) {
      for (size_t head = 0; head < n_heads; ++head)
        store.seal(sealing, 0, page, head, statistics.frames(0, head));
    }
    store.end_sealing(std::move(sealing), 0);
    store.commit(prompt.n_tokens);
  }

  // Of the last token's query.
  std::vector<float> attend(const Selection& selection) {
    const size_t dim = prompt.shape.head_dim;
    const size_t group = prompt.shape.n_heads / prompt.shape.n_kv_heads[0];
    std::vector<float> out(prompt.n_tokens * prompt.q_width());
    float* row = out.data() + (prompt.n_tokens - 1) * prompt.q_width();
    for (size_t head = 0; head < prompt.shape.n_kv_heads[0]; ++head) {
      const HeadFrames frames = statistics.frames(0, head);
      const float* q = prompt.q[0].data() + (prompt.n_tokens - 1) * prompt.q_width() + head * group * dim;
      std::vector<float> framed, bias;
      frame_queries(frames, q, group, dim, framed, bias);
      const QueryRows queries{q, 1, group, prompt.n_tokens - 1, framed.data(), bias.data()};
      const LayerView view = store.view(0, prompt.n_tokens);
      const Parts parts(view, prompt.n_tokens);
      PartialState total(group, dim);
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool sealed = parts[i].kind == Parts::Kind::kSealed;
        PartialState state(group, sealed ? sealed_width(frames, group, dim) : dim);
        AttendScratch scratch;
        attend_part(view, head, parts[i], queries, selection, &frames, scratch, state);
        if (sealed) unframe_output(frames, state);
        total.merge(state);
      }
      total.write_output(row + head * group * dim, dim);
    }
    return out;
  }

  const Prompt& prompt;
  Recipe recipe;
  CacheStatistics statistics;
  PagePool pool;
  Store store;
};

TEST(SealedSelection, RandomWords) {
  for (const std::string& code : code_names()) {
    for (const char* settings : {"sink=4,tail=64", "sink=0,tail=0", "sink=16,tail=10"}) {
      const Recipe recipe = coded_recipe(code, settings);
      const Prompt prompt(geometry(6, 72, {2}), 400, 21);
      Layer layer(prompt, recipe);
      Random random(5);
      for (const size_t one_in : {1, 2, 10, 60, 300}) {
        Selection selection(2, 7);
        std::vector<std::vector<bool>> chosen(2, std::vector<bool>(400));
        for (size_t head = 0; head < 2; ++head) {
          for (size_t t = 0; t < 400; ++t) {
            if (random.below(one_in) != 0) continue;
            selection.mark(head, t);
            chosen[head][t] = true;
          }
        }
        // The step that coded the pages is over: all of them are read in coded form.
        const size_t n_sealed = sealed_pages(recipe, 400) * 64;
        ASSERT_EQ(layer.store.coded_tokens(), n_sealed);
        const auto wanted =
            expected_outputs(prompt, recipe, 0, 399, [&](size_t head, size_t t) { return chosen[head][t]; });
        ASSERT_LE(largest_error(prompt, layer.attend(selection), wanted, 399), allowed_error(recipe))
            << recipe.text() << " one in " << one_in;
      }
      // Nothing selected: zeros. Everything: equal in every bit to a selection that says so.
      const std::vector<float> none = layer.attend(Selection(2, 7));
      for (const float x : none) ASSERT_EQ(x, 0.0f);
      Selection every(2, 7);
      for (size_t t = 0; t < 7 * 64; ++t) {
        every.mark(0, t);
        every.mark(1, t);
      }
      ASSERT_EQ(layer.attend(every), layer.attend(Selection::all())) << recipe.text();
    }
  }
}

}  // namespace
}  // namespace quire::test
