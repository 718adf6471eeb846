// The expressions of the families, as the models' own tokenizer.json give them, under the names of
// tokenizer.ggml.pre.
#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "text/pre_tokenizer.h"

namespace quire {

constexpr std::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Entry {
  std::string_view name;
  std::initializer_list<std::string_view> expressions;
  bool ignore_merges = false;
  bool adds_bos = false;
  bool nfc = false;  // the models of this name were trained on text in NFC
};

// The first entry of several with the same rules is the name that is written.
const Entry kEntries[] = {
    {"gpt-2", {kGpt2Expression}},
    {"smollm", {kDigit, kGpt2Expression}},  // every digit is a word of its own, then GPT-2
    {"llama-bpe", {kLlama3}, true, true},
    {"qwen2", {kQwen2}, false, false, true},
    {"tekken", {kTekken}, true, true},
    {"gpt-4o", {kGpt4o}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"starcoder", {kDigit, kGpt2Expression}},
    {"refact", {kDigit, kGpt2Expression}},
    {"command-r", {kDigit, kGpt2Expression}},
    {"phi-2", {kGpt2Expression}},
    {"olmo", {kGpt2Expression}},
    {"mpt", {kGpt2Expression}},
};

PreTokenizerFamily family_of(const Entry& entry) {
  PreTokenizerFamily family;
  for (const std::string_view expression : entry.expressions) {
    family.steps.push_back({std::string(expression), SplitBehavior::kIsolated, false});
  }
  if (entry.nfc) family.normalizer.push_back({NormalStep::Kind::kNfc});
  family.ignore_merges = entry.ignore_merges;
  family.adds_bos = entry.adds_bos;
  return family;
}

}  // namespace

PreTokenizerFamily pre_tokenizer_family(std::string_view name) {
  const auto entry = std::ranges::find(kEntries, name, &Entry::name);
  if (entry != std::end(kEntries)) return family_of(*entry);
  std::string names;
  for (const Entry& known : kEntries) names.append(names.empty() ? "" : ", ").append(known.name);
  throw Error("pre-tokenizer '" + std::string(name) + "' is not supported; supported are " + names);
}

std::string_view pre_tokenizer_name(std::span<const SplitStep> steps, std::span<const NormalStep> normalizer,
                                    bool ignore_merges) {
  for (const Entry& entry : kEntries) {
    const PreTokenizerFamily family = family_of(entry);
    if (family.ignore_merges == ignore_merges && std::ranges::equal(family.steps, steps) &&
        std::ranges::equal(family.normalizer, normalizer)) {
      return entry.name;
    }
  }
  return {};
}

}  // namespace quire
