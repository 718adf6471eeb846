// llama.cpp on a text, to hold `quire eval ppl` and `quire run --temp 0` against: its own tokenizer, its own
// forward pass.
//
//   peer_text -m MODEL -f TEXT [-c WINDOW] [-t N]     perplexity by the rule of `quire eval ppl`
//   peer_text -m MODEL -f TEXT -n N [-t N]            what it goes on with, greedily
//
// One line of JSON, with the tokens; of greedy ones also by how much their logit exceeded the next. Every
// window begins with the model's begin token where it wants one. f16 KV, flash attention on. Built by
// peer_llama_cpp.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden/forward/golden_file.h"
#include "peer.h"

namespace {

struct Options {
  std::string model;
  std::string text_path;
  size_t window = 2048;
  size_t n_new = 0;
  int n_threads = 2;
};

// The begin token, where the model wants one.
std::vector<llama_token> beginning(const Peer& peer) {
  if (!llama_vocab_get_add_bos(peer.vocabulary())) return {};
  return {llama_vocab_bos(peer.vocabulary())};
}

std::vector<llama_token> tokens_of(const Peer& peer, const std::string& text) {
  std::vector<llama_token> tokens(text.size() + 16);
  const int n = llama_tokenize(peer.vocabulary(), text.data(), static_cast<int32_t>(text.size()),
                               tokens.data(), static_cast<int32_t>(tokens.size()), false, false);
  if (n < 0) throw std::runtime_error("cannot tokenize the text");
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

void print_tokens(const std::vector<llama_token>& tokens) {
  std::printf("\"tokens\": [");
  for (size_t i = 0; i < tokens.size(); ++i) std::printf(i == 0 ? "%d" : ", %d", tokens[i]);
  std::printf("]}\n");
}

void report_perplexity(Peer& peer, const Options& options, const std::vector<llama_token>& tokens) {
  double total = 0;
  size_t n_scored = 0;
  for (size_t done = 0; done < tokens.size();) {
    std::vector<llama_token> window = beginning(peer);
    const size_t n = std::min(options.window - window.size(), tokens.size() - done);
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(done);
    window.insert(window.end(), first, first + static_cast<std::ptrdiff_t>(n));
    peer.forget();
    peer.run(
        std::span<const llama_token>(window), 0, [&](size_t at) { return at + 1 < window.size(); },
        [&](size_t at, const float* logits) {
          total += quire::golden::log_sum_exp(logits, peer.n_vocab()) - logits[window[at + 1]];
          ++n_scored;
        });
    done += n;
  }
  std::printf("{\"scored_tokens\": %zu, \"total_nll\": %.6f, \"perplexity\": %.6f, ", n_scored, total,
              std::exp(total / static_cast<double>(n_scored)));
  print_tokens(tokens);
}

void report_greedy(Peer& peer, const Options& options, const std::vector<llama_token>& tokens) {
  std::vector<llama_token> step = beginning(peer);
  step.insert(step.end(), tokens.begin(), tokens.end());
  std::vector<llama_token> said;
  std::vector<float> margins;
  size_t position = 0;
  while (said.size() < options.n_new) {
    llama_token best = 0;
    peer.run(
        std::span<const llama_token>(step), position, [&](size_t at) { return at + 1 == step.size(); },
        [&](size_t, const float* logits) {
          const float* most = std::max_element(logits, logits + peer.n_vocab());
          best = static_cast<llama_token>(most - logits);
          float second = -INFINITY;
          for (const float* other = logits; other < logits + peer.n_vocab(); ++other) {
            if (other != most) second = std::max(second, *other);
          }
          margins.push_back(*most - second);
        });
    position += step.size();
    if (llama_vocab_is_eog(peer.vocabulary(), best)) break;
    said.push_back(best);
    step = {best};
  }
  std::printf("{\"margins\": [");
  for (size_t i = 0; i < said.size(); ++i)
    std::printf(i == 0 ? "%.4f" : ", %.4f", static_cast<double>(margins[i]));
  std::printf("], ");
  print_tokens(said);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::runtime_error(name + " needs a value");
    const std::string value = argv[++i];
    if (name == "-m") {
      options.model = value;
    } else if (name == "-f") {
      options.text_path = value;
    } else if (name == "-c") {
      options.window = std::stoul(value);
    } else if (name == "-n") {
      options.n_new = std::stoul(value);
    } else if (name == "-t") {
      options.n_threads = std::max(1, std::stoi(value));
    } else {
      throw std::runtime_error("unknown argument " + name);
    }
  }
  if (options.model.empty() || options.text_path.empty() || options.window < 2) {
    throw std::runtime_error("-m MODEL and -f TEXT are needed, and a window of at least 2");
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    const std::string text = read_file(options.text_path);
    // As many tokens as bytes at most.
    Peer peer(options.model, options.n_new > 0 ? text.size() + options.n_new + 16 : options.window,
              options.n_threads);
    const std::vector<llama_token> tokens = tokens_of(peer, text);
    if (options.n_new > 0) {
      report_greedy(peer, options, tokens);
    } else {
      report_perplexity(peer, options, tokens);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_text: %s\n", error.what());
    return 2;
  }
  return 0;
}
