// The text of recipes that name policies: what is kept, read and promoted.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "cache/recipe.h"
#include "unit/cache/recipe_text.h"

namespace quire {
namespace {

const struct {
  const char* text;
  const char* canonical;
} kPolicySpellings[] = {
    {"h2o", "h2o"},
    {"keep=h2o", "h2o"},
    {"f16(keep=h2o())", "h2o"},
    {"h2o(budget=20%,recent=0.5)", "h2o"},
    {"h2o(recent=.25,budget=1000)", "h2o(budget=1000,recent=0.25)"},
    {"h2o(k=f32)", "k=f32,v=f16,keep=h2o"},
    {"keep=snapkv(window=16),v=bf16,k=bf16", "k=bf16,v=bf16,keep=snapkv(window=16)"},
    {"streaming(sink=2,window=512)", "streaming(window=512,sink=2)"},
    {"keep=window", "streaming"},
    {"keyformer(tau=1.5)", "keyformer(tau=1.5)"},
    {"logquant", "logquant"},
    {"k=kivi2,v=kivi2,keep=log", "logquant"},
    {"logquant(reserve=128,rule=strided)", "logquant(reserve=128,rule=strided)"},
    {"logquant(k=turbo2,v=turbo2)", "turbo2(keep=log)"},
    {"turbo2(keep=log(reserve=128),sink=2)", "turbo2(sink=2,keep=log(reserve=128))"},
    {"k=f16,v=f16,keep=log", "k=f16,v=f16,keep=log"},
    {"quire(keep=log)", "k=nested4,v=nested3,keep=log,select=sign"},
    {"select=quest(budget=64,queries=head)", "quest(budget=64,queries=head)"},
    {"quest(v=turbo4)", "k=f16,v=turbo4,select=quest"},
    {"doublesparse(from=prompt,bits=2)", "doublesparse(bits=2,from=prompt)"},
    {"turbo4(select=oracle)", "turbo4(select=oracle)"},
    {"butler", "butler"},
    {"select=butler()", "butler"},
    {"butler(sink=128,budget=2179,neighbours=on,interval=16)",
     "butler(budget=2179,sink=128,interval=16,neighbours=on)"},
    {"butler(k=turbo4,v=turbo4,sink=8,tail=32)", "turbo4(tail=32,select=butler(sink=8))"},
    {"k=turbo4,v=turbo3,sink=2,select=butler(sink=8,keys=int8,heads=score,dim=32)",
     "k=turbo4,v=turbo3,sink=2,select=butler(sink=8,keys=int8,heads=score,dim=32)"},
    {"random(seed=7)", "random(seed=7)"},
    {"logquant(k=turbo2,v=turbo2,select=butler)", "turbo2(keep=log,select=butler)"},
    {"turbo4(keep=log(partial=on),select=oracle)", "turbo4(keep=log(partial=on),select=oracle)"},
    {"monarch", "monarch"},
    {"monarch(window=512,max_hot=768,page=16,promote=0.12,sticky=2)", "monarch"},
    {"monarch(window=256,tail=256)", nullptr},
    {"monarch(promote=0.15,sticky=3,budget=5%)", "monarch(budget=5%,promote=0.15,sticky=3)"},
    {"monarch(trigger=score,window=64)", "monarch(trigger=score,window=64)"},
    {"k=nested4,v=nested3,tail=512,select=sign(candidates=1),promote=pages", "monarch"},
    {"monarch(candidates=1.5)", "monarch(candidates=1.5)"},
    {"k=nested2,v=nested3,select=sign,promote=pages(page=32)",
     "k=nested2,v=nested3,select=sign,promote=pages(page=32)"},
};

TEST(RecipePolicy, SpellingsAndTheirCanonicalText) {
  for (const auto& spelling : kPolicySpellings) {
    if (spelling.canonical == nullptr) {
      EXPECT_THROW(canonical(spelling.text), Error) << spelling.text;
      continue;
    }
    EXPECT_EQ(canonical(spelling.text), spelling.canonical) << spelling.text;
    EXPECT_EQ(canonical(spelling.canonical), spelling.canonical);
    EXPECT_EQ(Recipe::parse(spelling.canonical), Recipe::parse(spelling.text)) << spelling.text;
  }
}

// Every policy's named recipe is the policy alone, and every setting can be said and is printed.
TEST(RecipePolicy, EverySettingOfEveryPolicy) {
  for (size_t i = 1; i < kPolicyCount; ++i) {
    const PolicyInfo& policy = info(static_cast<Policy>(i));
    EXPECT_EQ(canonical(policy.recipe), policy.recipe);
    for (const PolicySetting& setting : policy.settings) {
      if (setting.words != nullptr) continue;
      for (const double value : {setting.least, setting.most}) {
        if (value == setting.usual) continue;
        char text[120];
        std::snprintf(text, sizeof text, "%s(%s=%.10g)", policy.recipe, setting.name, value);
        EXPECT_EQ(canonical(text), text);
      }
    }
  }
}

// Combinations that cannot be: the sentence names both parts.
const struct {
  const char* text;
  const char* one;
  const char* other;
} kPolicyRefusals[] = {
    {"turbo4(keep=h2o)", "keep=h2o", "k=turbo4"},
    {"h2o(v=kivi4)", "keep=h2o", "v=kivi4"},
    {"snapkv(k=q8)", "keep=snapkv", "k=q8"},
    {"streaming(k=turbo4,v=turbo4)", "keep=window", "k=turbo4"},
    {"h2o(select=quest)", "select=quest", "keep=h2o"},
    {"k=f16,v=f16,keep=log,select=oracle", "select=oracle", "keep=log"},
    {"k=f16,v=turbo4,keep=log,select=quest", "select=quest", "keep=log"},
    {"logquant(tail=128)", "keep=log", "tail="},
    {"selfindex(keep=log)", "keep=log", "full_rows="},
    {"butler(keep=h2o)", "select=butler", "keep=h2o"},
    {"k=f16,v=f16,keep=log,select=butler", "select=butler", "keep=log"},
    {"streaming(select=butler)", "select=butler", "keep=window"},
    {"quire(select=butler)", "select=", "twice"},
    {"butler(promote=pages)", "promote=pages", "select=sign"},
    {"butler(local=0)", "local=", "from 1"},
    {"butler(keys=f16)", "keys=", "bf16 or int8"},
    {"quest(k=turbo4)", "select=quest", "k=turbo4"},
    {"doublesparse(k=nested4,v=nested3)", "select=doublesparse", "k=nested4"},
    {"monarch(keep=log)", "promote=pages", "keep=log"},
    {"turbo4(promote=pages)", "promote=pages", "select=sign"},
    {"monarch(k=turbo4)", "select=sign", "k=turbo4"},
    {"selfindex(promote=pages)", "promote=pages", "full_rows="},
    {"quest(sink=4)", "sink=", "coded formats"},
    {"quest(page=24)", "page=", "24"},
    {"quest(select=sign)", "select=", "twice"},
    {"keep=h2o(budget=1,budget=2)", "budget=", "twice"},
    {"keep=h2o(window=3)", "window=3", "keep=h2o"},
    {"keep=quest", "keep= takes", "snapkv"},
    {"promote=h2o", "promote= takes", "pages"},
    {"logquant(rule=fast)", "rule=", "published or strided"},
    {"h2o(recent=2)", "recent=", "from 0 to 1"},
    {"h2o(budget=0%)", "budget=0%", "reads nothing"},
    {"snapkv(window=1.5)", "window=", "whole"},
    {"snapkv(kernel=4)", "kernel=", "odd"},
};

TEST(RecipePolicy, RefusalsNameBothParts) {
  for (const auto& entry : kPolicyRefusals) {
    try {
      ADD_FAILURE() << entry.text << " was accepted as " << canonical(entry.text);
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(entry.one), std::string::npos) << what;
      EXPECT_NE(what.find(entry.other), std::string::npos) << what;
      EXPECT_LT(what.size(), 250u) << what;
    }
  }
}

}  // namespace
}  // namespace quire
