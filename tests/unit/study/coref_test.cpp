#include "study/coref.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "engine/butler_file.h"
#include "study/coref_text.h"
#include "unit/engine/tiny_model.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

TEST(CorefText, NamesAreAllDifferentAndOfASeed) {
  std::set<std::string> names;
  for (const CorefItem& item : make_coref_items(3, kMostCorefItems)) names.insert(item.name);
  EXPECT_EQ(names.size(), kMostCorefItems);
  const auto one = make_coref_items(3, 5);
  const auto more = make_coref_items(3, 9);
  const auto other = make_coref_items(4, 5);
  size_t n_same = 0;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(one[i].name, more[i].name);
    EXPECT_EQ(one[i].lead, more[i].lead);
    EXPECT_EQ(one[i].fillers, more[i].fillers);
    n_same += one[i].name == other[i].name;
  }
  EXPECT_LT(n_same, 5u);
}

// Nothing but its own sentence and the question is about the place, and neither tells its name.
TEST(CorefText, TheNameStandsInOnePlace) {
  for (const CorefItem& item : make_coref_items(1, 200)) {
    EXPECT_TRUE(item.name.starts_with(" ")) << item.name;
    EXPECT_TRUE(item.question.starts_with("\n\n")) << item.question;
    const std::string word = item.name.substr(1);
    EXPECT_GE(word.size(), 6u) << word;
    EXPECT_EQ(item.lead.find(word), std::string::npos);
    EXPECT_EQ(item.question.find(word), std::string::npos);
    std::vector<std::vector<std::string_view>> subjects(item.fillers.begin(), item.fillers.end());
    subjects.push_back(item.prelude);
    for (const auto& sentences : subjects) {
      EXPECT_EQ(std::set<std::string_view>(sentences.begin(), sentences.end()).size(), sentences.size());
      for (const std::string_view sentence : sentences) {
        EXPECT_EQ(sentence.find(word), std::string_view::npos);
        EXPECT_TRUE(sentence.ends_with('.')) << sentence;
      }
    }
  }
}

CorefOptions small_coref(const std::string& recipes) {
  CorefOptions options;
  options.recipes = Recipe::parse_list(recipes);
  options.n_items = 4;
  return options;
}

// What is read of the name follows from what the recipes say they keep.
TEST(MeasureCoref, CountsTheRowsOfTheName) {
  test::TinyEngine tiny({.n_threads = 2});
  const std::vector<Coref> rows = measure_coref(
      tiny.engine,
      small_coref("full,streaming(window=20),quest(budget=100%),random(budget=60),oracle(budget=120),"
                  "nested4(frame=rotated,tail=0,select=sign(budget=40)),turbo4(frame=rotated,tail=0),"
                  "h2o(budget=150)"));
  for (const size_t i : {0, 2, 6}) {
    EXPECT_EQ(rows[i].accuracy, 1) << i;
    EXPECT_EQ(rows[i].coverage, 1) << i;
    EXPECT_NEAR(rows[i].read, 1, 1e-12) << i;
  }
  EXPECT_EQ(rows[0].rank, rows[0].rank_full);
  EXPECT_EQ(rows[0].nll, rows[0].nll_full);
  EXPECT_EQ(rows[1].coverage, 0);  // the name lies behind the sinks and before the window
  EXPECT_NEAR(rows[1].read, 25 / rows[1].tokens, 0.01);
  for (const size_t i : {3, 4, 5, 7}) {
    EXPECT_LE(rows[i].accuracy, rows[i].coverage) << i;
    EXPECT_GT(rows[i].coverage, 0) << i;
    EXPECT_LT(rows[i].read, 1) << i;
  }
  EXPECT_NEAR(rows[3].read, 60 / rows[3].tokens, 0.02);
  EXPECT_NEAR(rows[7].read, 151 / rows[7].tokens, 0.02);
  EXPECT_LE(rows[0].tokens + rows[0].location_tokens, 256.0);
}

class MeasureCorefButler : public test::TemporaryFolder {};

// The first 64 rows hold nothing of the name, and layers that are read whole do not count.
TEST_F(MeasureCorefButler, OfPairsThatLeaveRowsOutBehindTheFirstRows) {
  const std::string path = folder / "butler.safetensors";
  {
    test::TinyEngine tiny({.n_threads = 1});
    save_butler(ButlerWeights::zeros(butler_geometry(tiny.engine.config())), tiny.engine.fingerprint(), path,
                SafetensorsType::kF32);
  }
  test::TinyEngine tiny({.n_threads = 1, .butler_path = path});
  CorefOptions options =
      small_coref("butler(budget=70,sink=64,local=6),quest(dense=2),quest(dense=1,budget=100%)");
  options.n_items = 20;
  const std::vector<Coref> rows = measure_coref(tiny.engine, options);
  EXPECT_EQ(rows[0].coverage, 0);
  EXPECT_EQ(rows[0].accuracy, 0);
  EXPECT_GT(rows[0].read, 0.5);  // of its layers the first is read whole
  EXPECT_LT(rows[0].read, 0.8);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(rows[i].coverage, 1);
    EXPECT_EQ(rows[i].accuracy, 1);
  }
}

TEST(MeasureCoref, OfASeedWhateverTheThreads) {
  test::TinyEngine one({.n_threads = 1});
  test::TinyEngine two({.n_threads = 2});
  CorefOptions options = small_coref("nested4(frame=rotated,tail=0,select=sign(budget=40))");
  const Coref a = measure_coref(one.engine, options)[0];
  const Coref b = measure_coref(two.engine, options)[0];
  options.seed = 1;
  const Coref c = measure_coref(one.engine, options)[0];
  EXPECT_EQ(a.coverage, b.coverage);
  EXPECT_EQ(a.nll, b.nll);
  EXPECT_NE(a.nll, c.nll);
}

// So items can be measured apart.
TEST(MeasureCoref, MeansAreThoseOfTheParts) {
  test::TinyEngine tiny({.n_threads = 2});
  CorefOptions options = small_coref("random(budget=60)");
  const Coref all = measure_coref(tiny.engine, options)[0];
  options.n_items = 2;
  const Coref first = measure_coref(tiny.engine, options)[0];
  options.first_item = 2;
  const Coref last = measure_coref(tiny.engine, options)[0];
  EXPECT_NE(first.coverage, last.coverage);
  EXPECT_NEAR(all.coverage, (first.coverage + last.coverage) / 2, 1e-12);
  EXPECT_NEAR(all.rank * all.rank, first.rank * last.rank, 1e-9 * all.rank * all.rank);
  const double n_tokens = first.location_tokens + last.location_tokens;
  EXPECT_NEAR(all.nll, (first.nll * first.location_tokens + last.nll * last.location_tokens) / n_tokens,
              1e-9);
}

TEST(MeasureCoref, RefusesWhatCannotBe) {
  test::TinyEngine tiny({.n_threads = 1});
  EXPECT_THROW(measure_coref(tiny.engine, {}), Error);
  CorefOptions options = small_coref("full");
  options.n_items = 0;
  EXPECT_THROW(measure_coref(tiny.engine, options), Error);
  options.n_items = 1;
  options.first_item = kMostCorefItems;
  EXPECT_THROW(measure_coref(tiny.engine, options), Error);
  options.first_item = 0;
  options.most_tokens = 30;
  EXPECT_THROW(measure_coref(tiny.engine, options), Error);
}

}  // namespace
}  // namespace quire
