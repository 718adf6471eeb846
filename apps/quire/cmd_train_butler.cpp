// quire train-butler: trains the predictor of `select=butler` for a model, from that model.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "butler_outputs.h"
#include "butler_record.h"
#include "butler_texts.h"
#include "commands.h"
#include "engine/butler_file.h"
#include "options.h"
#include "study/butler_trainer.h"
#include "terminal.h"
#include "weights/open_model.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr const char* kTrainButlerExamples =
    "Examples:\n"
    "  quire train-butler -m model.gguf -f prose.txt -f code.txt -o butler.safetensors\n"
    "  quire train-butler -m model.gguf -f prose.txt --val other.txt --seq 2048 --steps 2000 -o "
    "b.safetensors\n"
    "  quire train-butler ... --resume      (goes on where Ctrl-C or a crash ended it; finished, does "
    "nothing)\n"
    "\nThe model stays as it is; what is trained is a small predictor of which tokens later layers attend "
    "to.\n"
    "While training goes on there is only a checkpoint (.state) beside OUT; at the end come OUT, its log "
    "(.jsonl)\nand a chart (.svg).";

struct TrainOptions {
  ModelOptions model;
  std::vector<std::string> files;
  std::string output;
  std::string validation;
  std::string start = "fitted";
  int64_t stride = 4, dim = 16, hidden = 128;
  int64_t seq = 1024, rows = 256, batch = 1, updates = 1, steps = 1000, seed = 0;
  int64_t sink = 4, local = 32;
  int64_t validate_every = 100, save_every = 25;
  int64_t start_sequences = 32, validation_sequences = 8;
  double learning_rate = 3e-3;
  bool even_rows = false;
  bool resume = false;
  bool json = false;
};

ButlerTraining training_of(const TrainOptions& o) {
  constexpr int64_t kMost = 1'000'000'000;
  check_range("--stride", o.stride, 1, 1024);
  check_range("--dim", o.dim, 1, 1024);
  check_range("--hidden", o.hidden, 1, 16384);
  check_range("--seq", o.seq, 16, kMost);
  check_range("--rows", o.rows, 1, kMost);
  check_range("--batch", o.batch, 1, 1024);
  check_range("--updates", o.updates, 1, 4096);
  check_range("--steps", o.steps, 1, 10'000'000);
  check_range("--sink", o.sink, 0, kMost);
  check_range("--local", o.local, 0, kMost);
  check_range("--seed", o.seed, 0, INT64_MAX);
  check_range("--validate-every", o.validate_every, 0, kMost);
  check_range("--start-seqs", o.start_sequences, 1, 65536);
  check_range("--val-seqs", o.validation_sequences, 1, 4096);
  check_range("--save-every", o.save_every, 1, kMost);
  if (!(o.learning_rate > 0) || o.learning_rate > 1) throw Error("--lr must be above 0 and at most 1");
  ButlerTraining training;
  training.stride = static_cast<size_t>(o.stride);
  training.dim = static_cast<size_t>(o.dim);
  training.hidden = static_cast<size_t>(o.hidden);
  training.seq_tokens = static_cast<size_t>(o.seq);
  training.n_rows = static_cast<size_t>(o.rows);
  training.batch = static_cast<size_t>(o.batch);
  training.updates = static_cast<size_t>(o.updates);
  training.n_steps = static_cast<size_t>(o.steps);
  training.learning_rate = o.learning_rate;
  training.seed = static_cast<uint64_t>(o.seed);
  training.mask = {static_cast<size_t>(o.sink), static_cast<size_t>(o.local), !o.even_rows};
  training.start = o.start == "random" ? ButlerStart::kRandom : ButlerStart::kFitted;
  training.n_start = static_cast<size_t>(o.start_sequences);
  training.n_validation = static_cast<size_t>(o.validation_sequences);
  training.validate_every = static_cast<size_t>(o.validate_every);
  return training;
}

uint64_t parameters_of_model(const std::string& path) {
  uint64_t n = 0;
  const GgufFile file = open_model(path);
  for (const TensorInfo& tensor : file.tensors()) n += tensor.row_length() * tensor.n_rows();
  return n;
}

std::string percent(double share) { return fixed(share * 100, 1) + " %"; }

std::string time_left(double seconds) {
  if (seconds < 90) return fixed(seconds, 0) + " s left";
  return fixed(std::ceil(seconds / 60), 0) + " min left";
}

class Training {
 public:
  Training(const TrainOptions& options, const ButlerOutputs& outputs, Engine& engine)
      : options_(options),
        outputs_(outputs),
        engine_(engine),
        texts_(read_butler_texts(options.files, options.validation,
                                 static_cast<size_t>(options.validation_sequences),
                                 static_cast<size_t>(options.seq), engine)),
        n_text_tokens_(texts_.n_tokens()),
        trainer_(engine, training_of(options), std::move(texts_.training), std::move(texts_.validation)),
        n_model_parameters_(parameters_of_model(options.model.path)) {
    trainer_.set_poll([] {
      if (interrupt_flag()) throw Interrupted{};
    });
  }

  int run() {
    const bool is_begun = std::filesystem::exists(outputs_.state);
    if (!is_begun && options_.resume && std::filesystem::exists(outputs_.predictor)) return finished_before();
    if (is_begun) resume();
    say_size();
    is_begun ? say_resumed() : start();
    steps();
    trainer_.save(outputs_.state);  // also when done: the result may find no room to be written
    return trainer_.is_done() ? finish() : interrupted();
  }

 private:
  void steps() {
    const auto start = Clock::now();
    const size_t first = trainer_.n_steps_done();
    ProgressLine line("training", true);
    try {
      while (!trainer_.is_done()) {
        const double loss = trainer_.step();
        const size_t done = trainer_.n_steps_done();
        mean_loss_ = mean_loss_ == 0 ? loss : 0.95 * mean_loss_ + 0.05 * loss;
        seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
        const double per_step = seconds_ / static_cast<double>(done - first);
        line.show(static_cast<double>(done) / static_cast<double>(options_.steps),
                  status() + ", " + time_left(per_step * static_cast<double>(options_.steps - done)));
        if (!trainer_.checks().empty() && trainer_.checks().back().step == done &&
            isatty(STDERR_FILENO) == 0) {
          write_note("step " + std::to_string(done) + ", " + status() + ", " + fixed(per_step, 2) +
                     " s a step");
        }
        if (done % static_cast<size_t>(options_.save_every) == 0 && !trainer_.is_done()) {
          trainer_.save(outputs_.state);
        }
      }
    } catch (const Interrupted&) {  // of the step nothing is done yet
    }
  }

  // A predictor that this command has made already.
  int finished_before() const {
    const ButlerWeights weights =
        load_butler(outputs_.predictor, engine_.fingerprint(), butler_geometry(engine_.config()));
    const SafetensorsMetadata metadata = SafetensorsFile::open(outputs_.predictor).metadata();
    const auto mark = metadata.find("training");
    if (mark == metadata.end() || mark->second != trainer_.mark()) {
      throw Error(printable(outputs_.predictor) +
                  (mark == metadata.end() ? " does not say with which options and texts it was trained"
                                          : " was trained with other options or texts") +
                  "; without --resume it is trained anew");
    }
    if (options_.json) {
      write_json({{"steps", options_.steps}, {"file", outputs_.predictor}, {"finished_before", true}});
      return kOk;
    }
    write_out(printable(outputs_.predictor) + " is finished: " + std::to_string(options_.steps) +
              " steps with these options and texts; nothing is left to do\n");
    return kOk;
  }

  double parameter_share() const {
    return static_cast<double>(trainer_.geometry().n_parameters()) / static_cast<double>(n_model_parameters_);
  }

  void say_size() const {
    const double share = parameter_share();
    write_note("a predictor of " + std::to_string(trainer_.geometry().n_parameters()) + " parameters, " +
               fixed(share * 100, 2) + " % of the model's " + std::to_string(n_model_parameters_) +
               (share > 0.01 ? ": more than 1 %" : "") + "; " + std::to_string(n_text_tokens_) +
               " tokens of text");
    const size_t n = trainer_.n_validation();
    write_note("validation keeps " + std::to_string(n) + " sequences of " + std::to_string(options_.seq) +
               " tokens, " + megabytes(trainer_.validation_bytes()) + " of the " +
               megabytes(trainer_.needed_bytes()) + " that the training takes" +
               (n < static_cast<size_t>(options_.validation_sequences)
                    ? "; more than these would overlap in the text to validate on"
                    : ""));
  }

  void resume() {
    if (!options_.resume) {
      throw Error(printable(outputs_.state) +
                  " is the checkpoint of an unfinished training; go on with --resume, or remove it");
    }
    trainer_.resume(outputs_.state);
  }

  void say_resumed() const {
    write_note("going on after step " + std::to_string(trainer_.n_steps_done()));
    if (trainer_.isa().find('+') == std::string::npos) return;
    write_note("computed by more than one instruction set, " + trainer_.isa() +
               ": the result is not exactly that of one of them alone");
  }

  void start() {
    ProgressLine line("measuring the model", true);
    try {
      trainer_.start([&](double share) { line.show(share); });
    } catch (const Interrupted&) {
      write_note("interrupted before the first step");
      throw;
    }
  }

  std::string status() const {
    std::string text = "loss " + fixed(mean_loss_, 3);
    if (!trainer_.checks().empty()) {
      const ButlerScore score = trainer_.checks().back().quality.mean(2);
      text += ", recall at 10 % " + percent(score.recall) + ", found " + percent(score.found());
    }
    return text;
  }

  Json head() const {
    Json files = Json::array();
    for (const std::string& file : options_.files) {
      files.push_back(std::filesystem::path(file).filename().string());
    }
    return {{"model", engine_.config().name},
            {"fingerprint", engine_.fingerprint()},
            {"parameters", trainer_.geometry().n_parameters()},
            {"share_of_model", parameter_share()},
            {"training", training_of(options_).text()},
            {"files", files},
            {"validation", std::filesystem::path(options_.validation).filename().string()},
            {"text_tokens", n_text_tokens_}};
  }

  int interrupted() const {
    write_note("stopped after " + std::to_string(trainer_.n_steps_done()) + " of " +
               std::to_string(options_.steps) + " steps; the same command with --resume goes on");
    return kInterrupted;
  }

  int finish() const {
    const SafetensorsMetadata more = {{"steps", std::to_string(trainer_.n_steps_done())},
                                      {"isa", trainer_.isa()},
                                      {"training", trainer_.mark()}};
    outputs_.write(encode_butler(trainer_.weights(), engine_.fingerprint(), SafetensorsType::kBF16, more),
                   butler_log(head(), trainer_), butler_chart("Training of a predictor", trainer_));
    std::error_code error;  // what it held is in the result; left behind, --resume finishes once more
    std::filesystem::remove(outputs_.state, error);
    const ButlerQuality& quality = trainer_.checks().back().quality;
    if (options_.json) {
      Json object = head();
      object["steps"] = trainer_.n_steps_done();
      object["loss"] = trainer_.losses().back();
      object["seconds"] = seconds_;
      object["quality"] = butler_quality_json(quality, false);
      object["file"] = options_.output;
      write_json(object);
      return kOk;
    }
    std::string text = "trained for " + std::to_string(trainer_.n_steps_done()) + " steps, written to " +
                       printable(options_.output) + "\n";
    for (size_t b = 0; b < kButlerBudgets.size(); ++b) {
      const ButlerScore score = quality.mean(b);
      text += "budget " + fixed(kButlerBudgets[b] * 100, 0) + " %: recall " + percent(score.recall) +
              ", attention read " + percent(score.mass) + ", by the best rows " + percent(score.oracle_mass) +
              "; found of what they add: " + percent(score.found()) + "\n";
    }
    write_out(text);
    return kOk;
  }

  const TrainOptions& options_;
  const ButlerOutputs& outputs_;
  Engine& engine_;
  ButlerTexts texts_;
  size_t n_text_tokens_;
  ButlerTrainer trainer_;
  uint64_t n_model_parameters_;
  double mean_loss_ = 0;
  double seconds_ = 0;
};

int run(const TrainOptions& options) {
  const EngineOptions engine_options = options.model.engine_options();
  (void)training_of(options);
  const auto same = [&](const std::string& file) { return file == options.validation; };
  if (std::any_of(options.files.begin(), options.files.end(), same)) {
    throw Error("--val " + printable(options.validation) + " is also a text to train on");
  }
  std::vector<std::string> inputs = options.files;
  inputs.push_back(options.model.path);
  if (!options.validation.empty()) inputs.push_back(options.validation);
  const ButlerOutputs outputs(options.output);
  outputs.check(inputs);
  catch_interrupts();
  Engine engine(options.model.path, engine_options);
  check_training(engine, training_of(options));
  try {
    return Training(options, outputs, engine).run();
  } catch (const Interrupted&) {
    return kInterrupted;
  }
}

}  // namespace

Command add_train_butler(CLI::App& root) {
  CLI::App* app = root.add_subcommand("train-butler", "Train the predictor of select=butler for a model.");
  auto options = std::make_shared<TrainOptions>();
  app->add_option("-f,--file", options->files, "text to train on; may be given several times; - is stdin")
      ->type_name("FILE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->required();
  app->add_option("-o,--output", options->output, "file to write")->type_name("FILE")->required();
  app->add_option("--val", options->validation,
                  "text to validate on (default: up to a quarter of the longest text, its end, taken away "
                  "from training)")
      ->type_name("FILE");
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app->add_option(name, value, text)->capture_default_str();
  };
  add("--stride", options->stride, "layers from producer to producer");
  add("--dim", options->dim, "values of a projected key");
  add("--hidden", options->hidden, "hidden units of a producer");
  add("--seq", options->seq, "tokens of a sequence");
  add("--batch", options->batch, "sequences of a step");
  add("--updates", options->updates, "updates of the weights in a step, each on other rows of its sequences");
  add("--rows", options->rows, "query rows of a sequence for an update");
  add("--steps", options->steps, "steps");
  add("--lr", options->learning_rate, "highest learning rate");
  add("--seed", options->seed, "of everything that chance decides");
  add("--sink", options->sink, "first tokens that are read anyway and not learnt");
  add("--local", options->local, "newest tokens that are read anyway and not learnt");
  add("--start", options->start, "begin fitted to the model by least squares, or at random")
      ->check(CLI::IsMember({"fitted", "random"}));
  add("--start-seqs", options->start_sequences, "sequences that a fitted start is measured on");
  add("--val-seqs", options->validation_sequences, "sequences of a validation");
  app->add_flag("--even-rows", options->even_rows,
                "count all query rows alike, however little they attend to tokens to be learnt");
  add("--validate-every", options->validate_every, "steps from validation to validation; 0: only at the end");
  add("--save-every", options->save_every, "steps from checkpoint to checkpoint");
  app->add_flag(
      "--resume", options->resume,
      "go on from the checkpoint beside the output, if there is one; nothing to do where OUT is finished");
  add_engine_options(*app, options->model);
  app->add_flag("--json", options->json, "print one JSON object");
  app->footer(kTrainButlerExamples);
  return {app, [options] { return run(*options); }};
}

}  // namespace quire::cli
