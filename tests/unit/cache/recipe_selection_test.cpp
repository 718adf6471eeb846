// The text of recipes that read through an index, code by the prompt's statistics or keep rows exact.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "cache/recipe.h"
#include "property/random.h"
#include "unit/cache/recipe_text.h"

namespace quire {
namespace {

TEST(RecipeSelection, Defaults) {
  const Recipe quire = Recipe::parse("quire");
  EXPECT_EQ(quire.text(), "quire");
  EXPECT_EQ(quire, Recipe::parse("k=nested4,v=nested3,select=sign"));
  EXPECT_EQ(quire.sink_tokens, 4u);
  EXPECT_EQ(quire.tail_tokens, 64u);
  EXPECT_FALSE(quire.prompt_statistics);
  EXPECT_TRUE(quire.needs_calibration());
  ASSERT_TRUE(quire.index);
  EXPECT_EQ(*quire.index, IndexBudget{});

  const Recipe selfindex = Recipe::parse("selfindex");
  EXPECT_EQ(selfindex.text(), "selfindex");
  EXPECT_EQ(selfindex,
            Recipe::parse("k=signvq,v=signvq,full_rows=64,select=sign(candidates=1,queries=mean)"));
  EXPECT_EQ(selfindex.full_rows, 64u);
  EXPECT_EQ(selfindex.sink_tokens, 0u);
  EXPECT_EQ(selfindex.tail_tokens, 0u);
  EXPECT_TRUE(selfindex.prompt_statistics);
  EXPECT_FALSE(selfindex.needs_calibration());
  EXPECT_TRUE(selfindex.index->mean_query);
}

const struct {
  const char* text;
  const char* canonical;
} kSelectionSpellings[] = {
    {"quire()", "quire"},
    {"quire(budget=7.5%)", "quire"},
    {"quire(budget=20%)", "quire(budget=20%)"},
    {"quire(sink=0,budget=20%,tail=128)", "quire(budget=20%,sink=0,tail=128)"},
    {"quire(budget=0.1%)", "quire(budget=0.1%)"},
    {"quire(budget=2048)", "quire(budget=2048)"},
    {"quire(budget=2e3)", "quire(budget=2000)"},
    {"quire(mass=0.9)", "quire(mass=0.9)"},
    {"quire(mass=.9,candidates=20%)", "quire(mass=0.9,candidates=20%)"},
    {"quire(candidates=35%,mass=0.95)", "quire(mass=0.95)"},
    {"quire(candidates=2)", "quire(candidates=2)"},
    {"quire(candidates=1.5)", "quire"},
    {"quire(dense=2,queries=mean)", "quire(dense=2,queries=mean)"},
    {"quire(queries=max,dense=0)", "quire"},
    {"quire(v=nested2)", "k=nested4,v=nested2,select=sign"},
    {"quire(k=nested2,budget=5%)", "k=nested2,v=nested3,select=sign(budget=5%)"},
    {"quire(stats=prompt,full_rows=8)", "quire(stats=prompt,full_rows=8)"},
    {"quire(stats=model)", "quire"},
    {"nested4(select=sign)", "nested4(select=sign)"},
    {"nested4(select=sign())", "nested4(select=sign)"},
    {"nested4(select=sign(budget=9%),sink=8)", "nested4(sink=8,select=sign(budget=9%))"},
    {"select=sign(mass=0.5),v=q8,k=nested2", "k=nested2,v=q8,select=sign(mass=0.5)"},
    {"selfindex(budget=7.5%,full_rows=64)", "selfindex"},
    {"selfindex(full_rows=0)", "selfindex(full_rows=0)"},
    {"selfindex(full_rows=16,budget=160)", "selfindex(budget=160,full_rows=16)"},
    {"selfindex(queries=max)", "selfindex(queries=max)"},
    {"selfindex(candidates=2)", "selfindex(candidates=2)"},
    {"selfindex(stats=prompt)", "selfindex"},
    {"k=signvq,v=signvq,select=sign", "selfindex(candidates=1.5,queries=max,full_rows=0)"},
    {"signvq", "signvq"},
    {"signvq(full_rows=5)", "signvq(full_rows=5)"},
    {"k=signvq,v=f16", "k=signvq,v=f16"},
    {"turbo4(stats=prompt)", "turbo4(stats=prompt)"},
    {"turbo4(stats=model)", "turbo4"},
    {"turbo4(v=turbo3)", "k=turbo4,v=turbo3"},
    {"turbo4(k=q8,stats=prompt,frame=centred)", "k=q8,v=turbo4,frame=centred,stats=prompt"},
    {"turbo4(full_rows=0)", "turbo4"},
};

TEST(RecipeSelection, SpellingsAndTheirCanonicalText) {
  for (const auto& spelling : kSelectionSpellings)
    EXPECT_EQ(canonical(spelling.text), spelling.canonical) << spelling.text;
}

// Settings of a selection, in any order.
std::string random_selection(test::Random& random, bool by_mass) {
  char number[40];
  const auto digits = [&](double x) {
    std::snprintf(number, sizeof number, "%.*g", 1 + static_cast<int>(random.below(17)), x);
    return std::string(number);
  };
  std::vector<std::string> settings;
  if (by_mass) {
    settings.push_back("mass=" + digits(random.uniform(0.02, 0.9)));
    if (random.below(2) == 0) settings.push_back("candidates=" + digits(random.uniform(0.1, 90)) + "%");
  } else {
    if (random.below(2) == 0)
      settings.push_back("budget=" + digits(random.uniform(0.01, 90)) + "%");
    else if (random.below(2) == 0)
      settings.push_back("budget=" + std::to_string(1 + random.below(1000000)));
    if (random.below(2) == 0) settings.push_back("candidates=" + digits(random.uniform(1.1, 50)));
  }
  if (random.below(3) == 0) settings.push_back("dense=" + std::to_string(random.below(30)));
  if (random.below(3) == 0) settings.push_back(random.below(2) == 0 ? "queries=mean" : "queries=max");
  std::string text;
  while (!settings.empty()) {
    const size_t i = random.below(settings.size());
    text += (text.empty() ? "" : ",") + settings[i];
    settings.erase(settings.begin() + static_cast<ptrdiff_t>(i));
  }
  return text;
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "," + b;
}

std::string random_text(test::Random& random) {
  const auto pick = [&](std::vector<std::string> from) { return from[random.below(from.size())]; };
  std::string settings;
  if (random.below(2) == 0) settings = joined(settings, "sink=" + std::to_string(random.below(17)));
  if (random.below(2) == 0) settings = joined(settings, "tail=" + std::to_string(random.below(500)));
  const std::string selection = random_selection(random, random.below(2) == 0);
  const size_t kind = random.below(4);
  if (kind == 1) {
    if (random.below(2) == 0) settings = joined(settings, "full_rows=" + std::to_string(random.below(65)));
    const std::string text = joined(selection, settings);
    return random.below(2) == 0 ? "selfindex(" + text + ")"
                                : "signvq(" + joined(settings, "select=sign(" + selection + ")") + ")";
  }
  if (random.below(3) == 0)
    settings = joined(settings, "stats=prompt,full_rows=" + std::to_string(random.below(65)));
  if (random.below(3) == 0) settings = joined(settings, pick({"frame=centred", "frame=calibrated"}));
  if (kind == 0) return "quire(" + joined(settings, selection) + ")";
  const std::string sides =
      "k=" + pick({"nested2", "nested3", "nested4"}) + ",v=" + pick({"nested2", "q8", "turbo3", "signvq"});
  return joined(joined(sides, settings), kind == 2 ? "select=sign(" + selection + ")" : "");
}

TEST(RecipeSelection, WhatIsPrintedParsesBack) {
  test::Random random(1);
  for (int round = 0; round < 20000; ++round) {
    const std::string text = random_text(random);
    const Recipe recipe = Recipe::parse(text);
    const Recipe again = Recipe::parse(recipe.text());
    ASSERT_EQ(again, recipe) << text << " is " << recipe.text();
    ASSERT_EQ(again.text(), recipe.text()) << text;
    const auto list = Recipe::parse_list("q8," + recipe.text() + ",kivi2");
    ASSERT_EQ(list.size(), 3u) << recipe.text();
    ASSERT_EQ(list[1], recipe);
  }
}

const struct {
  const char* text;
  const char* says;
} kSelectionRefusals[] = {
    {"quire(budget=0%)", "reads nothing"},
    {"quire(budget=101%)", "100"},
    {"quire(budget=-5%)", "from 0 to 100"},
    {"quire(budget=nan%)", "from 0 to 100"},
    {"quire(budget=nan)", "budget= takes a number"},
    {"quire(budget=inf)", "budget= takes a number"},
    {"quire(budget=0)", "from 1"},
    {"quire(budget=-1)", "from 1"},
    {"quire(budget=1e99)", "budget= takes a number"},
    {"quire(budget=1e999)", "budget= takes a number"},
    {"quire(budget=1.5)", "whole number"},
    {"quire(budget=)", "budget="},
    {"quire(budget=%)", "budget"},
    {"quire(budget)", "'budget' is not a setting"},
    {"quire(budget=5%%)", "budget"},
    {"quire(budget=5 %)", "budget"},
    {"quire(mass=2)", "from 0.01 to 1"},
    {"quire(mass=0)", "from 0.01 to 1"},
    {"quire(mass=-0.5)", "from 0.01 to 1"},
    {"quire(mass=nan)", "from 0.01 to 1"},
    {"quire(mass=90%)", "from 0.01 to 1"},
    {"quire(mass=)", "from 0.01 to 1"},
    {"quire(mass=0.9,budget=5%)", "together"},
    {"quire(budget=5%,budget=5%)", "more than once"},
    {"quire(mass=0.9,candidates=2)", "share of the tokens"},
    {"quire(candidates=20%)", "multiple of the budget"},
    {"quire(candidates=0.5)", "from 1 to 100"},
    {"quire(candidates=101)", "from 1 to 100"},
    {"quire(candidates=2,candidates=2)", "given twice"},
    {"quire(dense=1.5)", "whole number"},
    {"quire(dense=-1)", "dense= takes"},
    {"quire(dense=99999)", "dense= takes"},
    {"quire(dense=)", "dense= takes"},
    {"quire(queries=min)", "max or mean"},
    {"quire(queries=)", "max or mean"},
    {"quire(select=sign)", "select= is given twice"},
    {"quire(v=f16)", "reads coded values"},
    {"quire(k=turbo4)", "sign plane"},
    {"quire(k=f16)", "sign plane"},
    {"quire(", "not closed"},
    {"quire(budget=5%", "not closed"},
    {"quire(budget=5%))", ""},
    {"quire((budget=5%))", ""},
    {"quire)", ""},
    {"quire(,)", ""},
    {"quires", "did you mean 'quire'"},
    {"self-index", "did you mean 'selfindex'"},
    {"selfindex(full_rows=65)", "from 0 to 64"},
    {"selfindex(full_rows=-1)", "from 0 to 64"},
    {"selfindex(full_rows=1,full_rows=1)", "given twice"},
    {"selfindex(stats=model)", "not stats=model"},
    {"selfindex(frame=rotated)", "frame of its own"},
    {"selfindex(k=nested4)", "stats=prompt or k=signvq"},
    {"turbo4(full_rows=5)", "stats=prompt"},
    {"turbo4(stats=text)", "model or prompt"},
    {"turbo4(stats=)", "model or prompt"},
    {"turbo4(stats=prompt,stats=prompt)", "given twice"},
    {"kivi4(stats=prompt)", "stats=prompt is for"},
    {"turbo4(frame=rotated,stats=prompt)", "stats=prompt is for"},
    {"full(stats=model)", "coded formats"},
    {"f16(full_rows=3)", "full_rows="},
    {"turbo4(select=sign)", "sign plane"},
    {"full(select=sign)", "sign plane"},
    {"k=nested4,v=f16,select=sign", "reads coded values"},
    {"nested4(select=sign(budget=5%)", "not closed"},
    {"nested4(select=sign(budget=5%)))", ""},
    {"nested4(select=sign((budget=5%)))", ""},
    {"nested4(select=sign(sink=4))", "not a setting of select=sign"},
    {"nested4(select=sign(budget))", "not a setting of select=sign"},
    {"nested4(select=sign(,))", "not a setting of select=sign"},
    {"nested4(select=sign(budget=5%,))", "not a setting of select=sign"},
    {"nested4(select=)", "select= takes sign"},
    {"nested4(select=quest)", "k=nested4 is coded"},
    {"nested4(select=pages)", "select= takes sign, quest"},
    {"nested4(select=sign(budget=5%)x)", "select"},
    {"nested4(select=sign,select=sign)", "given twice"},
    {"nested4(budget=5%)", "is a setting of quire"},
    {"turbo4(mass=0.5)", "is a setting of quire"},
    {"k=nested4,v=nested3,select=sign(", ""},
    {"k=nested4,v=nested3,select=sign)", ""},
};

TEST(RecipeSelection, RefusalsSayWhatIsWrong) {
  for (const auto& entry : kSelectionRefusals) {
    const std::string error = refusal(entry.text);
    EXPECT_NE(error, "") << "'" << entry.text << "' was accepted as "
                         << (error.empty() ? canonical(entry.text) : "");
    EXPECT_NE(error.find(entry.says), std::string::npos) << entry.text << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_LT(error.size(), 250u) << error;
  }
}

// Random pieces of recipes either parse to something that prints and parses alike, or are refused.
TEST(RecipeSelection, NoTextDoesHarm) {
  test::Random random(2);
  const std::vector<std::string> pieces = {
      "quire", "selfindex", "(",       ")",      ",",          "=",    "budget=", "5%",
      "mass=", "0.9",       "select=", "sign",   "nan",        "1e99", "-1",      "k=nested4",
      "v=",    "nested3",   "stats=",  "prompt", "full_rows=", "64",   "frame=",  "\xff"};
  int n_parsed = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string text = random.below(2) == 0 ? "quire(" : "";
    for (size_t n = random.below(8); n > 0; --n) text += pieces[random.below(pieces.size())];
    if (random.below(2) == 0) text += ")";
    try {
      const Recipe recipe = Recipe::parse(text);
      ++n_parsed;
      ASSERT_EQ(Recipe::parse(recipe.text()), recipe) << text;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << text;
    }
    try {
      Recipe::parse_list(text);
    } catch (const Error&) {
    }
  }
  EXPECT_GT(n_parsed, 100);
  EXPECT_LT(refusal("quire(budget=" + std::string(100000, '9') + ")").size(), 300u);
  EXPECT_LT(refusal("nested4(select=sign(" + std::string(100000, '(') + "))").size(), 300u);
}

TEST(RecipeSelection, Lists) {
  using List = std::vector<std::string>;
  const auto listed = [](const char* text) {
    List texts;
    for (const Recipe& recipe : Recipe::parse_list(text)) texts.push_back(recipe.text());
    return texts;
  };
  EXPECT_EQ(listed("quire,selfindex"), List({"quire", "selfindex"}));
  EXPECT_EQ(listed("quire(budget=20%,sink=8),selfindex(full_rows=8,budget=160),full"),
            List({"quire(budget=20%,sink=8)", "selfindex(budget=160,full_rows=8)", "full"}));
  EXPECT_EQ(listed("k=nested4,v=q8,select=sign(budget=5%,candidates=3),quire"),
            List({"k=nested4,v=q8,select=sign(budget=5%,candidates=3)", "quire"}));
  EXPECT_EQ(listed("k=nested4,v=q8,select=sign(mass=0.5),k=nested2,v=q4"),
            List({"k=nested4,v=q8,select=sign(mass=0.5)", "k=nested2,v=q4"}));
  EXPECT_EQ(listed("nested4(select=sign(budget=5%,dense=1),tail=9),q8"),
            List({"nested4(tail=9,select=sign(budget=5%,dense=1))", "q8"}));
  for (const char* text :
       {"quire,budget=5%", "quire(budget=5%", "quire(budget=5%,q8", "selfindex(,q8)", "quire)"}) {
    EXPECT_THROW(Recipe::parse_list(text), Error) << text;
  }
}

}  // namespace
}  // namespace quire
