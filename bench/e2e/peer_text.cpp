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
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "llama.h"

namespace {

constexpr size_t kBatchTokens = 512;  // llama.cpp's default

struct Options {
  std::string model;
  std::string text_path;
  size_t window = 2048;
  size_t n_new = 0;
  int n_threads = 2;
};

class Peer {
 public:
  Peer(const Options& options, size_t n_context) {
    llama_backend_init();
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    model_.reset(llama_model_load_from_file(options.model.c_str(), llama_model_default_params()));
    if (!model_) throw std::runtime_error("cannot load " + options.model);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(n_context);
    params.n_batch = params.n_ubatch = kBatchTokens;
    params.n_threads = params.n_threads_batch = options.n_threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = GGML_TYPE_F16;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) throw std::runtime_error("cannot make a context");
    vocabulary_ = llama_model_get_vocab(model_.get());
  }

  size_t n_vocab() const { return static_cast<size_t>(llama_vocab_n_tokens(vocabulary_)); }

  std::vector<llama_token> begin() const {
    if (!llama_vocab_get_add_bos(vocabulary_)) return {};
    return {llama_vocab_bos(vocabulary_)};
  }

  bool ends(llama_token token) const { return llama_vocab_is_eog(vocabulary_, token); }

  std::vector<llama_token> tokens_of(const std::string& text) const {
    std::vector<llama_token> tokens(text.size() + 16);
    const int n = llama_tokenize(vocabulary_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                                 static_cast<int32_t>(tokens.size()), false, false);
    if (n < 0) throw std::runtime_error("cannot tokenize the text");
    tokens.resize(static_cast<size_t>(n));
    return tokens;
  }

  void forget() { llama_memory_clear(llama_get_memory(context_.get()), true); }

  // Appends the tokens at `position` and calls sink(index, logits) for those that are wanted.
  template <typename Wanted, typename Sink>
  void run(const std::vector<llama_token>& tokens, size_t position, Wanted wanted, Sink sink) {
    for (size_t start = 0; start < tokens.size(); start += kBatchTokens) {
      const size_t count = std::min(kBatchTokens, tokens.size() - start);
      llama_batch batch = llama_batch_init(static_cast<int32_t>(count), 0, 1);
      batch.n_tokens = static_cast<int32_t>(count);
      for (size_t i = 0; i < count; ++i) {
        batch.token[i] = tokens[start + i];
        batch.pos[i] = static_cast<llama_pos>(position + start + i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = wanted(start + i) ? 1 : 0;
      }
      const int status = llama_decode(context_.get(), batch);
      for (size_t i = 0; status == 0 && i < count; ++i) {
        if (batch.logits[i]) sink(start + i, llama_get_logits_ith(context_.get(), static_cast<int32_t>(i)));
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
  const llama_vocab* vocabulary_ = nullptr;
};

double nll(const float* logits, size_t n, llama_token target) {
  const double most = *std::max_element(logits, logits + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(logits[i]) - most);
  return std::log(sum) + most - static_cast<double>(logits[target]);
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
    std::vector<llama_token> window = peer.begin();
    const size_t n = std::min(options.window - window.size(), tokens.size() - done);
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(done);
    window.insert(window.end(), first, first + static_cast<std::ptrdiff_t>(n));
    peer.forget();
    peer.run(
        window, 0, [&](size_t at) { return at + 1 < window.size(); },
        [&](size_t at, const float* logits) {
          total += nll(logits, peer.n_vocab(), window[at + 1]);
          ++n_scored;
        });
    done += n;
  }
  std::printf("{\"scored_tokens\": %zu, \"total_nll\": %.6f, \"perplexity\": %.6f, ", n_scored, total,
              std::exp(total / static_cast<double>(n_scored)));
  print_tokens(tokens);
}

void report_greedy(Peer& peer, const Options& options, const std::vector<llama_token>& tokens) {
  std::vector<llama_token> step = peer.begin();
  step.insert(step.end(), tokens.begin(), tokens.end());
  std::vector<llama_token> said;
  std::vector<float> margins;
  size_t position = 0;
  while (said.size() < options.n_new) {
    llama_token best = 0;
    peer.run(
        step, position, [&](size_t at) { return at + 1 == step.size(); },
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
    if (peer.ends(best)) break;
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
    Peer peer(options, options.n_new > 0 ? text.size() + options.n_new + 16 : options.window);
    const std::vector<llama_token> tokens = peer.tokens_of(text);
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
