// llama.cpp held against the frozen reference: the same token ids, the same positions, the same measure as
// ours.
//
//   peer_logits -m MODEL [-t N] [--ppl TOKENS.bin] [GOLDEN.bin ...]
//
// For each golden file one line of JSON: mean and greatest KL(reference || llama.cpp), and how often the most
// probable token is the same where the reference's margin exceeds 0.05. For --ppl (u16 token ids) the
// perplexity under the rule of tests/golden/forward/data/perplexity.json. f16 KV, flash attention on. Built
// by peer_llama_cpp.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden/forward/golden_file.h"
#include "peer.h"

namespace {

constexpr size_t kContextTokens = 4096;
constexpr size_t kWindowTokens = 2048;
constexpr float kClearMargin = 0.05f;

struct Options {
  std::string model;
  std::string ppl_tokens;
  std::vector<std::string> golden;
  int n_threads = 2;
};

void report_divergence(Peer& peer, const std::string& path) {
  const quire::golden::GoldenFile golden = quire::golden::load(path);
  const auto& positions = golden.positions;
  double sum = 0, greatest = 0;
  size_t index = 0, n_clear = 0, n_same = 0;
  peer.forget();
  peer.run(
      std::span<const uint16_t>(golden.tokens), 0,
      [&](size_t position) { return std::binary_search(positions.begin(), positions.end(), position); },
      [&](size_t, const float* logits) {
        const double kl = golden.kl(logits, peer.n_vocab(), index);
        sum += kl;
        greatest = std::max(greatest, kl);
        if (golden.margin(index) > kClearMargin) {
          ++n_clear;
          n_same += quire::golden::argmax(logits, peer.n_vocab()) == golden.top1(index);
        }
        ++index;
      });
  std::printf("{\"prompt_tokens\": %zu, \"positions\": %zu, \"kl_mean\": %.3e, \"kl_max\": %.3e, ",
              golden.tokens.size(), positions.size(), sum / static_cast<double>(positions.size()), greatest);
  std::printf("\"top1_same\": %zu, \"top1_clear\": %zu}\n", n_same, n_clear);
  std::fflush(stdout);
}

std::vector<uint16_t> read_tokens(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<uint16_t> tokens(static_cast<size_t>(file.tellg()) / sizeof(uint16_t));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(tokens.data()),
            static_cast<std::streamsize>(tokens.size() * sizeof(uint16_t)));
  return tokens;
}

void report_perplexity(Peer& peer, const std::string& path) {
  const std::vector<uint16_t> tokens = read_tokens(path);
  double total = 0;
  size_t n_scored = 0;
  for (size_t start = 0; start < tokens.size(); start += kWindowTokens) {
    const uint16_t* window = &tokens[start];
    const size_t n = std::min(kWindowTokens, tokens.size() - start);
    peer.forget();
    peer.run(
        std::span(window, n), 0, [&](size_t position) { return position + 1 < n; },
        [&](size_t position, const float* logits) {
          total += quire::golden::log_sum_exp(logits, peer.n_vocab()) - logits[window[position + 1]];
          ++n_scored;
        });
  }
  std::printf("{\"tokens\": %zu, \"scored_tokens\": %zu, \"total_nll\": %.6f, \"perplexity\": %.6f}\n",
              tokens.size(), n_scored, total, std::exp(total / static_cast<double>(n_scored)));
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool takes_value = name == "-m" || name == "-t" || name == "--ppl";
    if (takes_value && i + 1 == argc) throw std::runtime_error(name + " needs a value");
    if (name == "-m") {
      options.model = argv[++i];
    } else if (name == "-t") {
      options.n_threads = std::max(1, std::atoi(argv[++i]));
    } else if (name == "--ppl") {
      options.ppl_tokens = argv[++i];
    } else if (name.starts_with("-")) {
      throw std::runtime_error("unknown argument " + name);
    } else {
      options.golden.push_back(name);
    }
  }
  if (options.model.empty()) throw std::runtime_error("-m MODEL is needed");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    Peer peer(options.model, kContextTokens, options.n_threads);
    for (const std::string& path : options.golden) report_divergence(peer, path);
    if (!options.ppl_tokens.empty()) report_perplexity(peer, options.ppl_tokens);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_logits: %s\n", error.what());
    return 2;
  }
  return 0;
}
