// Recipes: how a cache keeps and reads its tokens, as plain data with one canonical text.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/place.h"
#include "format/row_format.h"
#include "format/side_format.h"
#include "policy/index_budget.h"
#include "policy/policy_choice.h"

namespace quire {

// The frame that rows are coded in (format/frame.h).
enum class FrameKind : uint8_t {
  kPlain,       // rows as they are
  kRotated,     // randomised Hadamard transform
  kCalibrated,  // rotated; keys centred and balanced by the model's calibration
  kCentred,     // the same, and values centred too: measured to be worse (ADR 6), kept to compare with
};

std::string_view frame_name(FrameKind kind);

// Every KV-cache method is a point on free axes: the formats of keys and values, which tokens are kept and
// which of these stay exact, which are read, which coded ones have a decoded copy.
struct Recipe {
  constexpr Recipe() = default;
  // Every token in exact rows.
  constexpr Recipe(Format keys_in, Format values_in) : key_format(keys_in), value_format(values_in) {}

  // Exact rows: all of them, or the sinks and the tail.
  Format key_format = Format::kF16;
  Format value_format = Format::kF16;
  // Pages older than the tail, where `coded`.
  bool coded = false;
  SideFormat keys;
  SideFormat values;
  size_t sink_tokens = 4;          // 0 to 16 first tokens that stay exact
  size_t tail_tokens = 64;         // at least so many of the newest tokens stay exact
  std::optional<FrameKind> frame;  // of coded sides; unset: calibrated for codes made for it, else plain
  // A decode step reads the rows that the index of the keys names; unset: all of them.
  std::optional<IndexBudget> index;
  // The frames of keys and values are made of the sequence's own first tokens instead of the model's
  // calibration: of those that the layer holds when its first pages are coded.
  bool prompt_statistics = false;
  // So many rows of each KV head stay exact, chosen then as those that the last query likes best; at most 64.
  size_t full_rows = 0;

  PolicyChoice keep = {};
  PolicyChoice select = {};
  PolicyChoice promote = {};
  PagePlace place = {};

  bool operator==(const Recipe&) const = default;

  // Pages older than the tail get another form, or leave for a tier.
  bool seals() const { return coded || place.given(); }
  // Rows leave the cache for good.
  bool drops() const { return keep.given() && !coded; }
  // The sequence may be longer than the model's context, of which a step sees so many tokens at most.
  bool endless() const { return keep.policy == Policy::kWindow; }
  SideFormat key_side() const { return coded ? keys : SideFormat::exact(key_format); }
  SideFormat value_side() const { return coded ? values : SideFormat::exact(value_format); }
  FrameKind frame_of(const SideFormat& side) const;
  // The frames are the model's.
  bool calibrates_frames() const;
  // They are, or the channels by which rows are selected.
  bool needs_calibration() const;
  // Rows are named by the model's trained predictor.
  bool needs_butler() const { return select.policy == Policy::kButler; }

  // The same rows, all of them in memory.
  Recipe without_place() const;

  // The canonical text: parse(text()) is the same recipe.
  //   full                       every token, f16 keys and values
  //   k=bf16,v=f16               every token in the formats named
  //   turbo4                     coded, but for the first 4 and at least the last 64 tokens
  //   turbo4(sink=0,tail=128)
  //   k=turbo4,v=turbo3,tail=128
  //   quire(budget=20%)          = k=nested4,v=nested3,select=sign(budget=20%)
  //   selfindex                  = k=signvq,v=signvq,full_rows=64,select=sign(candidates=1,queries=mean)
  //   h2o(budget=10%)            = keep=h2o(budget=10%)
  //   k=turbo2,v=turbo2,keep=log(reserve=128)
  //   monarch(window=256)        = k=nested4,v=nested3,tail=256,select=sign(candidates=1),promote=pages
  // and behind any of them where its rows lie, if that is not memory:
  //   butler(budget=5%),place=disk(path=/tmp,size=8G)
  std::string text() const;

  // Reads `full`, a named recipe, a format's name for both sides, each with settings in parentheses, or
  // settings alone: k=FORMAT, v=FORMAT, sink=N, tail=N, frame=plain|rotated|calibrated|centred,
  // stats=model|prompt, full_rows=N, keep=POLICY(...), select=sign(...) or POLICY(...), promote=POLICY(...),
  // place=host(...), place=disk(path=FOLDER,...).
  // In the parentheses of a named recipe the settings of its policy stand as well; of sign: budget=P%|N,
  // mass=SHARE, candidates=X, dense=LAYERS, queries=max|mean. Throws Error of one sentence; an unknown name
  // is answered with the nearest known.
  static Recipe parse(std::string_view text);

  // Reads a list of recipes with commas between them. A comma in parentheses belongs to its recipe, and so
  // does place= behind it. A recipe that begins with a setting (NAME=) goes on over the parts behind it that
  // are settings too, until one is given again: that one begins the next recipe. So these are two recipes
  // each:
  //   turbo4,k=turbo4,v=turbo3,tail=128
  //   k=turbo4,v=turbo3,k=q8,v=q4
  static std::vector<Recipe> parse_list(std::string_view text);
};

// What `quire recipes` and error messages list.
struct RecipeInfo {
  std::string name;
  std::string summary;
};
std::span<const RecipeInfo> known_recipes();

}  // namespace quire
