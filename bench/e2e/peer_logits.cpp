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
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden/forward/golden_file.h"
#include "llama.h"

namespace {

constexpr int kContextTokens = 4096;
constexpr int kBatchTokens = 512;  // llama.cpp's default; also bounds the logits held at once to 100 MB
constexpr size_t kWindowTokens = 2048;
constexpr float kClearMargin = 0.05f;

struct Options {
  std::string model;
  std::string ppl_tokens;
  std::vector<std::string> golden;
  int n_threads = 2;
};

class Peer {
 public:
  Peer(const std::string& path, int n_threads) {
    llama_backend_init();
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    model_.reset(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
    if (!model_) throw std::runtime_error("cannot load " + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = kContextTokens;
    params.n_batch = kBatchTokens;
    params.n_ubatch = kBatchTokens;
    params.n_threads = params.n_threads_batch = n_threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = GGML_TYPE_F16;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) throw std::runtime_error("cannot make a context");
    n_vocab_ = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_.get())));
  }

  size_t n_vocab() const { return n_vocab_; }

  // Runs one prompt from an empty cache and calls sink(position, logits[n_vocab]) at each wanted position,
  // rising.
  template <typename Wanted, typename Sink>
  void run(const uint16_t* tokens, size_t n, Wanted wanted, Sink sink) {
    llama_memory_clear(llama_get_memory(context_.get()), true);
    for (size_t start = 0; start < n; start += kBatchTokens) {
      const size_t count = std::min<size_t>(kBatchTokens, n - start);
      llama_batch batch = llama_batch_init(static_cast<int32_t>(count), 0, 1);
      batch.n_tokens = static_cast<int32_t>(count);
      for (size_t i = 0; i < count; ++i) {
        batch.token[i] = tokens[start + i];
        batch.pos[i] = static_cast<llama_pos>(start + i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = wanted(start + i) ? 1 : 0;
      }
      const int status = llama_decode(context_.get(), batch);
      if (status == 0) {
        for (size_t i = 0; i < count; ++i) {
          if (batch.logits[i]) sink(start + i, llama_get_logits_ith(context_.get(), static_cast<int32_t>(i)));
        }
      }
      llama_batch_free(batch);
      if (status != 0) throw std::runtime_error("llama_decode failed");
    }
  }

 private:
  struct Deleter {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  std::unique_ptr<llama_model, Deleter> model_;
  std::unique_ptr<llama_context, Deleter> context_;
  size_t n_vocab_ = 0;
};

void report_divergence(Peer& peer, const std::string& path) {
  const quire::golden::GoldenFile golden = quire::golden::load(path);
  const auto& positions = golden.positions;
  double sum = 0, greatest = 0;
  size_t index = 0, n_clear = 0, n_same = 0;
  peer.run(
      golden.tokens.data(), golden.tokens.size(),
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
    peer.run(
        window, n, [&](size_t position) { return position + 1 < n; },
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
    Peer peer(options.model, options.n_threads);
    for (const std::string& path : options.golden) report_divergence(peer, path);
    if (!options.ppl_tokens.empty()) report_perplexity(peer, options.ppl_tokens);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_logits: %s\n", error.what());
    return 2;
  }
  return 0;
}
