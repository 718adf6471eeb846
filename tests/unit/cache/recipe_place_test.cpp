#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "cache/recipe.h"

namespace quire {
namespace {

std::string error_of(const std::string& text) {
  try {
    Recipe::parse(text);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(RecipePlace, HasOneCanonicalTextBehindTheRecipe) {
  const struct {
    const char* given;
    const char* text;
  } cases[] = {
      {"full,place=host", "full,place=host"},
      {"full(place=host)", "full,place=host"},
      {"full,place=memory", "full"},
      {"turbo4(tail=128),place=host(ahead=4)", "turbo4(tail=128),place=host"},
      {"turbo4(place=host(ahead=7),tail=128)", "turbo4(tail=128),place=host(ahead=7)"},
      {"k=turbo4,v=turbo3,place=disk(path=/tmp),tail=128",
       "k=turbo4,v=turbo3,tail=128,place=disk(path=/tmp)"},
      {"butler(budget=5%),place=disk(path=/tmp,size=8G)", "butler(budget=5%),place=disk(path=/tmp,size=8G)"},
      {"butler,place=disk(size=8000M,path=/tmp)", "butler,place=disk(path=/tmp,size=8G)"},
      {"quire,place=disk(device=threads,cache=1500K,path=a b/c=d,ahead=0)",
       "quire,place=disk(path=a b/c=d,ahead=0,cache=1500K,device=threads)"},
      {"full,place=host(size=1234567)", "full,place=host(size=1234567)"},
  };
  for (const auto& each : cases) {
    const Recipe recipe = Recipe::parse(each.given);
    EXPECT_EQ(recipe.text(), each.text) << each.given;
    EXPECT_EQ(Recipe::parse(recipe.text()), recipe) << each.given;
    EXPECT_EQ(recipe.without_place().text().find("place"), std::string::npos);
  }
}

TEST(RecipePlace, BelongsToTheRecipeBeforeItInAList) {
  const auto recipes =
      Recipe::parse_list("full,turbo4,place=host,k=q8,v=q4,place=disk(path=/tmp,size=1G),turbo3(tail=64)");
  ASSERT_EQ(recipes.size(), 4u);
  EXPECT_EQ(recipes[0].text(), "full");
  EXPECT_EQ(recipes[1].text(), "turbo4,place=host");
  EXPECT_EQ(recipes[2].text(), "k=q8,v=q4,place=disk(path=/tmp,size=1G)");
  EXPECT_EQ(recipes[3].text(), "turbo3");
}

TEST(RecipePlace, WhatCannotBeIsRefusedInOneSentence) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"full,place=", "memory, host or disk"},
      {"full,place=tape", "not 'tape'"},
      {"full,place=memory(size=1G)", "is not a setting of place=memory"},
      {"full,place=host(path=/tmp)", "is not a setting of place=host"},
      {"full,place=host(size=8G", "not closed"},
      {"full,place=host()", "is not a setting"},
      {"full,place=disk", "path=FOLDER"},
      {"full,place=disk(size=8G)", "path=FOLDER"},
      {"full,place=disk(path=)", "names no folder"},
      {"full,place=disk(path=a,b)", "is not a setting"},
      {"full,place=disk(path=a(b))", "parentheses"},
      {"full,place=disk(path=\xc3\xa9)", "ASCII"},
      {"full,place=host(size=0)", "size="},
      {"full,place=host(size=-1)", "size="},
      {"full,place=host(size=8X)", "size="},
      {"full,place=host(size=99999999999999999999G)", "size="},
      {"full,place=host(size=2000T)", "size="},
      {"full,place=host(ahead=1.5)", "ahead"},
      {"full,place=host(ahead=99999)", "ahead"},
      {"full,place=host(ahead=1,ahead=1)", "twice"},
      {"full,place=host,place=host", "place"},
      {"full(place=host),place=host", "twice"},
      {"full,place=disk(path=/tmp,device=tape)", "io_uring"},
      {"h2o,place=host", "place=host is for rows that stay, and keep=h2o drops"},
      {"streaming,place=disk(path=/tmp)", "place=disk is for rows that stay, and keep=window drops"},
      {"full,tail=64", ""},
  };
  for (const auto& each : cases) {
    const std::string error = error_of(each.text);
    EXPECT_NE(error, "") << each.text;
    EXPECT_NE(error.find(each.says), std::string::npos) << each.text << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(RecipePlace, TwoAreToldApart) {
  for (const char* text : {"turbo4,place=host,place=host", "turbo4,place=disk(path=/tmp),place=host"}) {
    try {
      Recipe::parse(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("place= is given twice"), std::string::npos) << error.what();
    }
  }
}

TEST(RecipePlace, IsListed) {
  bool host = false, disk = false;
  for (const RecipeInfo& entry : known_recipes()) {
    host = host || entry.name == "place=host";
    disk = disk || entry.name.starts_with("place=disk");
  }
  EXPECT_TRUE(host && disk);
}

}  // namespace
}  // namespace quire
