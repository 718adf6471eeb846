#include "gpu/generate.h"

#include <chrono>

#include "engine/text_output.h"

namespace quire::gpu {

namespace {

using Clock = std::chrono::steady_clock;

class Loop {
 public:
  Loop(DeviceBatch& batch, const Tokenizer& tokenizer, size_t context_tokens, const GenerateOptions& options)
      : batch_(batch), tokenizer_(tokenizer), context_tokens_(context_tokens), options_(options) {}

  FinishReason run(int32_t last, TextOutput& output, Generation& result) {
    const size_t n_prompt = batch_.n_tokens(0);
    while (true) {
      if (options_.stop_flag != nullptr && options_.stop_flag->load(std::memory_order_relaxed)) {
        return FinishReason::kInterrupted;
      }
      if (result.tokens.size() >= options_.max_tokens) return FinishReason::kLength;
      if (n_prompt + result.tokens.size() >= context_tokens_) return FinishReason::kContext;
      ask_ahead(result.tokens.size());
      const int32_t id = batch_.take_tokens().front();
      result.n_steps = result.tokens.size();  // the first token came with the prompt
      if (tokenizer_.is_end_of_generation(id)) return FinishReason::kEnd;
      const bool begins = tokenizer_.is_control(last);
      result.tokens.push_back(id);
      last = id;
      if (!tokenizer_.is_control(id)) {
        output.push(begins ? tokenizer_.first_token_bytes(id) : tokenizer_.token_bytes(id));
      }
      if (output.stopped()) return FinishReason::kStopString;
    }
  }

 private:
  // Step i chooses token i + 1 of the answer, counted from 0, and takes in token i. One that is followed by
  // coding waits until that token is known to be of the answer: what is coded cannot be taken back.
  void ask_ahead(size_t n_read) {
    while (n_asked_ < n_read + kStepsAhead && n_asked_ + 1 < options_.max_tokens &&
           batch_.n_tokens(0) < context_tokens_) {
      if (n_asked_ >= n_read && batch_.step_codes()) break;
      batch_.step();
      ++n_asked_;
    }
  }

  DeviceBatch& batch_;
  const Tokenizer& tokenizer_;
  const size_t context_tokens_;
  const GenerateOptions& options_;
  size_t n_asked_ = 0;
};

}  // namespace

Generation generate(DeviceBatch& batch, const Tokenizer& tokenizer, int32_t last, size_t context_tokens,
                    const GenerateOptions& options, const OnText& on_text) {
  TextOutput output(options.stops, on_text);
  Generation result;
  const auto start = Clock::now();
  result.finish = Loop(batch, tokenizer, context_tokens, options).run(last, output, result);
  batch.wait();
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  output.finish();
  if (output.stopped()) result.finish = FinishReason::kStopString;
  result.text = output.text();
  return result;
}

}  // namespace quire::gpu
