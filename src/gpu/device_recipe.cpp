#include "gpu/device_recipe.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "gpu/device_matrix.h"
#include "kernels/cuda/attention.h"

namespace quire::gpu {

namespace {

std::optional<int> turbo_bits(Code code) {
  if (code < Code::kTurbo2 || code > Code::kTurbo4) return std::nullopt;
  return 2 + static_cast<int>(code) - static_cast<int>(Code::kTurbo2);
}

std::optional<int> nested_bits(Code code) {
  if (code < Code::kNested2 || code > Code::kNested4) return std::nullopt;
  return 2 + static_cast<int>(code) - static_cast<int>(Code::kNested2);
}

// Not kivi2, which there are kernels for: two bits a channel change with the rounding of weights to bf16, and
// predictions with them (docs/results/cuda-model.md).
bool is_panel(Code code) { return code == Code::kQ8 || code == Code::kQ4 || code == Code::kKivi4; }

constexpr int kMostRows = 1 << 24;

class Reader {
 public:
  Reader(const Recipe& recipe, const std::string& text) : recipe_(recipe), text_(text) {}

  DeviceRecipe read() {
    if (recipe_.place.kind == PagePlace::Kind::kDisk) refuse("keeps its rows on a disk");
    if (recipe_.promote.given()) refuse("promotes pages");
    if (recipe_.keep.given()) read_keep();
    if (recipe_.select.given()) read_select();
    const bool is_signvq = recipe_.coded && recipe_.keys == SideFormat::of(Code::kSignVq);
    if ((recipe_.full_rows > 0 || recipe_.prompt_statistics) && !is_signvq) {
      refuse("looks at the prompt to code it");
    }
    if (recipe_.key_format == Format::kF32 || recipe_.key_format != recipe_.value_format) {
      refuse("has exact rows other than f16, bf16 or fp8, keys and values alike");
    }
    if (recipe_.key_format == Format::kFP8 && (recipe_.keep.given() || recipe_.select.given())) {
      refuse("lets fp8 rows leave or selects among them");
    }
    result_.format = recipe_.key_format;
    if (recipe_.coded) read_codes();
    if (recipe_.place.given()) read_place();
    return result_;
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    throw Error("recipe '" + text_ + "' " + why + ", which the CUDA device does not do: use --device cpu");
  }

  // Which rows stay hangs on positions alone.
  void read_keep() {
    const PolicyChoice& keep = recipe_.keep;
    if (keep.policy == Policy::kLog && keep.number("partial") == 0) {
      const size_t n_sinks = recipe_.coded ? recipe_.sink_tokens : 0;
      result_.reserve =
          LogReserve(static_cast<ReserveRule>(keep.number("rule")), keep.number("reserve"), n_sinks);
    } else if (keep.policy == Policy::kWindow && !recipe_.coded) {
      result_.window_tokens = static_cast<int>(std::min<size_t>(keep.number("window"), kMostRows));
      result_.sink_tokens = static_cast<int>(recipe_.sink_tokens);
    } else {
      refuse("keeps rows by a policy other than a window or a reserve of whole rows");
    }
    if (recipe_.place.given()) refuse("moves rows that lie in the host's memory");
  }

  void read_select() {
    const PolicyChoice& select = recipe_.select;
    if (select.policy != Policy::kQuest) refuse("selects rows by a policy other than quest");
    if (select.number("queries") != 0) refuse("chooses pages for each query head");
    const auto page_tokens = static_cast<int>(select.number("page"));
    if (!cuda::has_short_pages(page_tokens)) refuse("has pages of other than 16, 32 or 64 tokens");
    if (recipe_.coded || recipe_.keep.given() || recipe_.place.given()) {
      refuse("selects among rows that are not all exact, or not all on the device");
    }
    const auto rows = static_cast<int>(std::min<size_t>(select.budget.rows, kMostRows));
    result_.quest = {page_tokens, static_cast<int>(select.number("dense")), {select.budget.share, rows}};
  }

  void read_codes() {
    if (!recipe_.keys.coded || !recipe_.values.coded) refuse("codes one side and not the other");
    result_.keys = recipe_.keys.code;
    result_.values = recipe_.values.code;
    result_.sink_tokens = static_cast<int>(recipe_.sink_tokens);
    result_.tail_tokens = static_cast<int>(recipe_.tail_tokens);
    if (result_.keys == Code::kSignVq) return read_signvq();
    if (recipe_.index) return read_index();
    const std::optional<int> keys = turbo_bits(result_.keys);
    const std::optional<int> values = turbo_bits(result_.values);
    if (keys && values && (*keys == *values || *keys == *values + 1)) {
      result_.kind = AttentionKind::kTurbo;
      result_.key_bits = *keys;
      result_.value_bits = *values;
    } else if (result_.keys == result_.values && (is_panel(result_.keys) || is_logquant())) {
      result_.kind = AttentionKind::kPanels;
    } else {
      refuse("has codes that are not among turbo, q8, q4, kivi4");
    }
  }

  // Of these codes the published method is made.
  bool is_logquant() const { return result_.reserve.given() && result_.keys == Code::kKivi2; }

  void read_signvq() {
    if (result_.values != Code::kSignVq) refuse("has signvq keys and other values");
    if (result_.reserve.given()) refuse("keeps a reserve beside signvq codes");
    if (result_.sink_tokens > 0) refuse("keeps sinks beside signvq codes");
    if (recipe_.frame && *recipe_.frame != FrameKind::kPlain) refuse("has signvq codes in a frame");
    result_.kind = AttentionKind::kSignVq;
    result_.full_rows = static_cast<int>(recipe_.full_rows);
    if (!recipe_.index) {
      result_.budget = {1, 0, 0, 1};
      return;
    }
    const IndexBudget& budget = *recipe_.index;
    if (budget.dense_layers > 0 || !budget.mean_query || budget.mass > 0 || budget.candidates != 1) {
      refuse(
          "reads signvq codes through an index with dense=, queries=max, mass= or candidates= other than 1");
    }
    result_.budget = {budget.share, static_cast<int>(budget.rows), 0, 1};
  }

  void read_index() {
    const std::optional<int> keys = nested_bits(result_.keys);
    const std::optional<int> values = nested_bits(result_.values);
    if (!keys || !values || !(*keys == *values || (*keys == 4 && *values == 3))) {
      refuse("reads codes other than nested ones through an index");
    }
    const IndexBudget& budget = *recipe_.index;
    if (budget.dense_layers > 0 || budget.mean_query) refuse("has an index with dense= or queries=mean");
    result_.kind = AttentionKind::kSparse;
    result_.key_bits = *keys;
    result_.value_bits = *values;
    result_.budget = {budget.share, static_cast<int>(budget.rows), budget.mass, budget.candidates};
  }

  void read_place() {
    const bool is_signvq = result_.kind == AttentionKind::kSignVq;
    if (result_.kind != AttentionKind::kSparse && !(is_signvq && recipe_.index)) {
      refuse("keeps rows in the host's memory that every step reads");
    }
    if (!is_signvq && result_.key_bits != 4)
      refuse("keeps codes of fewer than four bits in the host's memory");
    result_.offloads = true;
    result_.limits = {recipe_.place.size_bytes, recipe_.place.cache_bytes};
  }

  const Recipe& recipe_;
  const std::string& text_;
  DeviceRecipe result_;
};

void check_unit(const char* what, size_t n) {
  if (n % kColumnUnit != 0) {
    throw Error(std::string("the CUDA device multiplies by ") + std::to_string(kColumnUnit) +
                " columns, and the model's " + what + " is " + std::to_string(n));
  }
}

}  // namespace

DeviceRecipe device_recipe(const Recipe& recipe, const std::string& text) {
  return Reader(recipe, text).read();
}

void check_model(const ModelConfig& config) {
  if (!cuda::has_kernels(static_cast<int>(config.head_dim))) {
    throw Error(
        "the CUDA device has kernels for heads of 64, 80, 96, 128 and 256 values, and the model's have " +
        std::to_string(config.head_dim));
  }
  check_unit("width", config.width);
  check_unit("feed-forward width", config.ffn_width);
  check_unit("width of all heads", config.n_heads * config.head_dim);
}

}  // namespace quire::gpu
