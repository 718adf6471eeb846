// llama.cpp with a model: f16 KV, flash attention on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "llama.h"

constexpr size_t kBatchTokens = 512;  // llama.cpp's default; also bounds the logits held at once

class Peer {
 public:
  Peer(const std::string& path, size_t n_context, int n_threads) {
    llama_backend_init();
    llama_log_set(
        [](ggml_log_level level, const char* text, void*) {
          if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
    model_.reset(llama_model_load_from_file(path.c_str(), llama_model_default_params()));
    if (!model_) throw std::runtime_error("cannot load " + path);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(n_context);
    params.n_batch = params.n_ubatch = kBatchTokens;
    params.n_threads = params.n_threads_batch = n_threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = GGML_TYPE_F16;
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) throw std::runtime_error("cannot make a context");
  }

  const llama_vocab* vocabulary() const { return llama_model_get_vocab(model_.get()); }
  size_t n_vocab() const { return static_cast<size_t>(llama_vocab_n_tokens(vocabulary())); }

  void forget() { llama_memory_clear(llama_get_memory(context_.get()), true); }

  // Appends the tokens, any integers, at `position`, and calls sink(index, logits[n_vocab]) for those that
  // are wanted, rising.
  template <typename Token, typename Wanted, typename Sink>
  void run(std::span<const Token> tokens, size_t position, Wanted wanted, Sink sink) {
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
};
