// Sequences on a GPU that take their steps together: their caches, and the step as one CUDA graph that stays
// valid as they grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/recipe.h"
#include "cache/statistics.h"
#include "gpu/device_model.h"

namespace quire {
class Cache;
}

namespace quire::gpu {

// As engine/sampler.h has them.
struct DeviceSampling {
  double temperature = 0;
  int32_t top_k = 40;  // 1 to 1024, where the temperature is not 0
  double top_p = 0.95;
  double min_p = 0.05;
  uint64_t seed = 0;  // of sequence 0; the others' follow
  std::vector<int32_t> banned = {};
  double repeat_penalty = 1;  // 1: none
  int32_t repeat_last_n = 64;

  bool penalises() const { return repeat_penalty != 1 && repeat_last_n != 0; }
};

struct BatchOptions {
  Recipe recipe = {};
  int n_sequences = 1;
  size_t context_tokens = 0;  // of each sequence: pages for so many are set aside
  DeviceSampling sampling = {};
  uint64_t budget_bytes = 0;  // most memory for the caches; 0: no limit
  size_t choice_tokens = 0;   // tokens that may be chosen, the first of the vocabulary; 0: all
};

struct PromptOptions {
  std::function<void(double share)> progress = {};  // share of the layers done
  const std::atomic<bool>* stop_flag = nullptr;     // looked at between layers
};

// Not to be used from two threads. The model outlives it.
class DeviceBatch {
 public:
  // Reserves all memory of steps and caches. Throws Error for a recipe that the device does not do or that
  // lacks facts, DeviceError where memory is refused; nothing is left behind then.
  DeviceBatch(const DeviceModel& model, const BatchOptions& options, const ModelFacts& facts);
  ~DeviceBatch();
  DeviceBatch(const DeviceBatch&) = delete;
  DeviceBatch& operator=(const DeviceBatch&) = delete;

  int n_sequences() const;
  size_t n_tokens(int sequence) const;
  // Throws Error for one that is not of the vocabulary, as prefill() does.
  void check_ids(std::span<const int32_t> tokens) const;

  // Computes a prompt, layer by layer, behind the tokens that the sequence has, and chooses its next token.
  // Its rows attend to all rows before, coded ones too. Memory beyond the cache: one layer's exact rows of
  // all tokens, and the residual stream. False: the flag was set before it was done, and the sequence is
  // empty. On an exception the sequence is as before (where memory was refused), or empty.
  bool prefill(int sequence, std::span<const int32_t> tokens, const PromptOptions& options = {});
  // For a sequence that is not empty and whose last logits are known from elsewhere, [vocabulary]: chooses
  // its next token by them.
  void resume(int sequence, std::span<const float> logits);
  // The sequence's generator becomes what it is after so many draws from its seed.
  void set_draws(int sequence, uint64_t n_draws);
  // What the sequence's next step takes in, instead of the token that was chosen.
  void set_token(int sequence, int32_t token);

  // Asks for a step of all sequences, none of which is empty, and returns at once: each appends its token and
  // chooses the next. Throws Error, with nothing changed, where a context is full. Steps that were asked for
  // and whose tokens were not taken may be kRing at most.
  void step();
  static constexpr int kRing = 64;
  // Waits for the oldest step (or prefill) whose tokens were not taken, and gives the tokens chosen by it,
  // one a sequence; of a prefill only its own sequence's counts. Throws Error where no logit was a finite
  // number.
  std::vector<int32_t> take_tokens();
  // Waits until nothing is under way, and forgets the tokens that were not taken.
  void drop_tokens();
  // Until nothing is under way.
  void wait();

  // Of the last step (or prefill) of a sequence, [vocabulary]: those of banned tokens are -inf, and recent
  // ones are penalised.
  std::vector<float> logits(int sequence);

  // Forgets all tokens from n_tokens on, none of which is coded, or all; the next step wants set_token().
  void crop(int sequence, size_t n_tokens);
  // `to`, which is empty, becomes like `from`, its next token too.
  void fork(int from, int to);

  // Between a sequence and a cache of the CPU, of the recipe and model of this batch, where the receiver is
  // empty. load() throws Error for more tokens, or coded ones, than there is room for; `tokens` are those of
  // the rows. What was chosen behind them is not part of it: see resume().
  void save(int sequence, Cache& to);
  void load(int sequence, const Cache& from, std::span<const int32_t> tokens);

  // Bytes of pages in use; and of all that was reserved for pages, with what is measured of each sequence:
  // what a budget is held against where no rows lie outside.
  uint64_t cache_bytes() const;
  uint64_t reserved_bytes() const;
  // Everything on the device but the weights.
  uint64_t memory_bytes() const;
  // Of that, of the cache: what a budget holds.
  uint64_t cache_memory_bytes() const;

  // The next step is followed by the coding of pages, or rows leave with it: it cannot be cut off again.
  bool step_codes() const;
  // Prompts behind tokens of a sequence are taken, and save() and load(): not where codes are made of the
  // sequence's own tokens, nor where they lie outside.
  bool gives_rows() const;

  // Rows that lie in memory of the host, and what steps asked of them since the last call. All 0 where a
  // recipe has none.
  struct Outside {
    uint64_t outside_bytes = 0;   // reserved on the host
    uint64_t resident_bytes = 0;  // on the device, for rows fetched
    uint64_t record_bytes = 0;    // of a row of a KV head
    uint64_t steps = 0;           // of the batch, those that nobody waited for among them
    uint64_t asked = 0;           // rows that steps wanted
    uint64_t fetched = 0;         // of these, those that were not on the device: whole records came
    uint64_t in_place = 0;        // and those read where they lie, for want of a place: a record at most each
    // Share of the rows wanted that were on the device. None where no row was wanted.
    std::optional<double> hit_rate() const {
      if (asked == 0) return std::nullopt;
      return 1 - static_cast<double>(fetched + in_place) / static_cast<double>(asked);
    }
    // Of n bytes or rows of these steps; 0 where there was none.
    double per_step(uint64_t n) const {
      return steps > 0 ? static_cast<double>(n) / static_cast<double>(steps) : 0;
    }
  };
  Outside take_outside();
  // Milliseconds that it takes to copy all rows outside to the device once.
  double time_sweep();

  // For measuring: sequence gets n_tokens of random rows, coded as the recipe has it.
  void fill_random(int sequence, size_t n_tokens, uint64_t seed);
  // Milliseconds of each of n steps, by events on the device, the sequences cut back after each so that all
  // are of one length; each takes in another token of the vocabulary, drawn by `seed`. without_attention: of
  // a graph that leaves it out (its output is the queries).
  std::vector<float> time_steps(int n, bool without_attention, uint64_t seed = 1);

  struct Parts;  // of the library itself

 private:
  [[noreturn]] void refuse_recipe(const char* what) const;

  std::unique_ptr<Parts> parts_;
};

}  // namespace quire::gpu
