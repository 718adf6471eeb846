// The text of recipes: what parses, what it prints as, and how every refusal reads.
#include "cache/recipe.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "unit/cache/recipe_text.h"

namespace quire {
namespace {

TEST(Recipe, EveryRecipePrintsAsTextThatParsesBack) {
  for (const FormatInfo& key : kFormats) {
    for (const FormatInfo& value : kFormats) {
      const Recipe recipe{key.format, value.format};
      EXPECT_EQ(Recipe::parse(recipe.text()), recipe) << recipe.text();
      EXPECT_EQ(Recipe::parse(recipe.text()).text(), recipe.text());
    }
  }
}

struct Spelling {
  const char* text;
  const char* canonical;
};

TEST(Recipe, SpellingsAndTheirCanonicalText) {
  for (const Spelling& spelling : {Spelling{"full", "full"},
                                   {"full()", "full"},
                                   {"f16", "full"},
                                   {"k=f16,v=f16", "full"},
                                   {"v=f16", "full"},
                                   {"full(v=f16)", "full"},
                                   {"f32", "k=f32,v=f32"},
                                   {"bf16", "k=bf16,v=bf16"},
                                   {"k=bf16", "k=bf16,v=f16"},
                                   {"v=f32", "k=f16,v=f32"},
                                   {"v=bf16,k=f32", "k=f32,v=bf16"},
                                   {"full(k=f32,v=bf16)", "k=f32,v=bf16"}}) {
    EXPECT_EQ(Recipe::parse(spelling.text).text(), spelling.canonical) << spelling.text;
  }
}

std::string quoted(const char* text) { return std::string("'").append(text).append("'"); }

TEST(Recipe, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_EQ(refusal("ful"), "there is no recipe 'ful'; did you mean 'full'?");
  EXPECT_EQ(refusal("Full"), "there is no recipe 'Full'; did you mean 'full'?");
  EXPECT_EQ(refusal("fp16"), "there is no recipe 'fp16'; did you mean 'f16'?");
  EXPECT_EQ(refusal("bfloat16"), "there is no recipe 'bfloat16'; did you mean 'bf16'?");
  EXPECT_EQ(refusal("k=f17"), "recipe 'k=f17': there is no format 'f17'; did you mean 'f16'?");
  EXPECT_EQ(refusal("full(v=bf18)"),
            "recipe 'full(v=bf18)': there is no format 'bf18'; did you mean 'bf16'?");
}

TEST(Recipe, EveryOtherRefusalIsOneSentenceThatShowsTheText) {
  for (const char* text : {"",
                           " full",
                           "full ",
                           "full(",
                           "full)",
                           "full(k)",
                           "full(k=f16,)",
                           "k=f16,",
                           "k=",
                           "v=",
                           "k",
                           "k=f16,k=f16",
                           "v=f32,k=f16,v=f32",
                           "k=f16;v=f16",
                           "k=f16,w=f16",
                           "k=f16,,v=f16",
                           "kv=f16",
                           "full(full)",
                           "full(k=f16)x",
                           "k=full",
                           "=",
                           ",",
                           "()",
                           "k=f16 ,v=f16",
                           "\xff\xfe"}) {
    const std::string error = refusal(text);
    EXPECT_NE(error, "") << "'" << text << "' was accepted";
    EXPECT_NE(error.find(quoted(text)), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(Recipe, LongTextsAreCutInTheError) {
  const std::string error = refusal(std::string(100000, 'x'));
  EXPECT_NE(error, "");
  EXPECT_LT(error.size(), 200u);
  EXPECT_LT(refusal("k=" + std::string(100000, 'y')).size(), 300u);
}

TEST(Recipe, KnownRecipesHaveNamesAndSummaries) {
  ASSERT_FALSE(known_recipes().empty());
  EXPECT_EQ(known_recipes().front().name, "full");
  for (const RecipeInfo& recipe : known_recipes()) EXPECT_NE(std::string(recipe.summary), "");
}

std::vector<std::string> listed(const char* text) {
  std::vector<std::string> texts;
  for (const Recipe& recipe : Recipe::parse_list(text)) texts.push_back(recipe.text());
  return texts;
}

TEST(RecipeList, CommasAndSettings) {
  using List = std::vector<std::string>;
  EXPECT_EQ(listed("full"), List({"full"}));
  EXPECT_EQ(listed("full,turbo4,kivi2"), List({"full", "turbo4", "kivi2"}));
  EXPECT_EQ(listed("turbo4(sink=0,tail=128),q8"), List({"turbo4(sink=0,tail=128)", "q8"}));
  EXPECT_EQ(listed("turbo4,k=turbo4,v=turbo3,tail=128,q4"),
            List({"turbo4", "k=turbo4,v=turbo3,tail=128", "q4"}));
  EXPECT_EQ(listed("k=turbo4,v=turbo3,k=q8,v=q4"), List({"k=turbo4,v=turbo3", "k=q8,v=q4"}));
  EXPECT_EQ(listed("k=turbo4,v=turbo3,tail=128,v=q4,k=q8"),
            List({"k=turbo4,v=turbo3,tail=128", "k=q8,v=q4"}));
}

TEST(RecipeList, WhatIsWrongIsRefused) {
  for (const char* text : {"", "full,", ",full", "turbo4,tail=128", "turbo4(tail=128", "full,nonsense",
                           "k=turbo4,v=turbo3,tail=1,tail=2", "turbo4)", "k=f16,,v=f16"}) {
    EXPECT_THROW(Recipe::parse_list(text), Error) << text;
  }
}

}  // namespace
}  // namespace quire
