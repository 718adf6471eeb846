#include "study/butler_trainer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "base/atomic_file.h"
#include "base/error.h"
#include "engine/butler_file.h"
#include "study/butler_memory.h"
#include "unit/engine/tiny_model.h"
#include "unit/temporary_folder.h"

namespace quire {
namespace {

// Six layers, so that the first producer serves four of them and a second one the last.
struct TinyTeacher {
  explicit TinyTeacher(int n_threads = 1, uint64_t model_seed = 1)
      : bytes(test::TinyModel(model_seed, test::kTinyContext, 6).build()),
        engine(GgufFile::from_memory(bytes, "tiny.gguf"), {.n_threads = n_threads}) {}

  test::Bytes bytes;
  Engine engine;
};

Tokens text_of(size_t n, size_t salt) {
  Tokens tokens(n);
  Random random(salt);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.next() % 256);
  return tokens;
}

ButlerTraining short_training() {
  ButlerTraining training;
  training.dim = 4;
  training.hidden = 8;
  training.seq_tokens = 128;
  training.n_rows = 12;
  training.n_steps = 6;
  training.batch = 2;
  training.updates = 2;
  training.learning_rate = 3e-3;
  training.mask = {2, 8, true};
  training.n_start = 3;
  training.validate_every = 4;
  training.n_validation = 2;
  training.n_validation_rows = 8;
  return training;
}

ButlerTrainer trainer_of(Engine& engine, const ButlerTraining& training) {
  return {engine, training, {text_of(1000, 1), text_of(300, 2)}, text_of(400, 3)};
}

std::vector<std::byte> trained(Engine& engine, const ButlerTraining& training) {
  ButlerTrainer trainer = trainer_of(engine, training);
  trainer.start();
  while (!trainer.is_done()) trainer.step();
  return encode_butler(trainer.weights(), engine.fingerprint(), SafetensorsType::kF32);
}

// A safetensors file of F32 tensors of one dimension, taken apart.
struct State {
  explicit State(const std::string& path) {
    const SafetensorsFile file = SafetensorsFile::open(path);
    texts = {file.metadata().begin(), file.metadata().end()};
    for (const Safetensor& tensor : file.tensors()) {
      tensors[tensor.name] = file.read(tensor.name, std::array<uint64_t, 1>{tensor.n_values});
    }
  }

  void write(const std::string& path) const {
    SafetensorsWriter writer;
    for (const auto& [key, text] : texts) writer.add_text(key, text);
    for (const auto& [name, values] : tensors)
      writer.add(name, {values.size()}, values, SafetensorsType::kF32);
    write_file_atomically(path, writer.bytes());
  }

  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<float>> tensors;
};

class ButlerTrainerTest : public test::TemporaryFolder {
 protected:
  std::string error_of_resume(Engine& engine, const ButlerTraining& training, const std::string& path) {
    ButlerTrainer trainer = trainer_of(engine, training);
    try {
      trainer.resume(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(ButlerTrainerTest, EveryNumberOfThreadsGivesTheSamePredictor) {
  for (const ButlerStart start : {ButlerStart::kFitted, ButlerStart::kRandom}) {
    ButlerTraining training = short_training();
    training.start = start;
    TinyTeacher one(1), three(3);
    const auto first = trained(one.engine, training);
    EXPECT_EQ(first, trained(three.engine, training));
    EXPECT_EQ(first, trained(one.engine, training));
    training.seed = 1;
    EXPECT_NE(first, trained(one.engine, training));
  }
}

TEST_F(ButlerTrainerTest, ResumedEqualsUninterrupted) {
  TinyTeacher setup;
  const ButlerTraining training = short_training();
  const auto whole = trained(setup.engine, training);
  const std::string path = folder / "t.state";
  std::vector<float> losses;
  for (size_t stop = 1; stop <= training.n_steps; ++stop) {  // a new process each time, as it were
    ButlerTrainer trainer = trainer_of(setup.engine, training);
    if (stop == 1) {
      trainer.start();
    } else {
      trainer.resume(path);
    }
    EXPECT_EQ(trainer.n_steps_done(), stop - 1);
    trainer.step();
    trainer.save(path);
    if (stop < training.n_steps) continue;
    EXPECT_EQ(encode_butler(trainer.weights(), setup.engine.fingerprint(), SafetensorsType::kF32), whole);
    ASSERT_EQ(trainer.checks().size(), 3u);  // at the start, after four, at the end
    EXPECT_EQ(trainer.checks()[1].step, 4u);
    EXPECT_EQ(trainer.checks()[2].quality.n_rows, 16u);
    EXPECT_GT(trainer.checks()[1].quality.mean(2).oracle_mass, 0);
    EXPECT_EQ(trainer.losses().size(), training.n_steps);
  }
}

TEST_F(ButlerTrainerTest, CheckpointsOfOtherTrainingsAreRefused) {
  TinyTeacher setup, other(1, 2);
  const std::string path = folder / "t.state";
  ButlerTraining training = short_training();
  ButlerTrainer trainer = trainer_of(setup.engine, training);
  trainer.start();
  trainer.save(path);
  EXPECT_EQ(error_of_resume(setup.engine, training, path), "no error");
  EXPECT_NE(error_of_resume(other.engine, training, path).find("another model"), std::string::npos);
  training.learning_rate = 1e-3;
  const std::string error = error_of_resume(setup.engine, training, path);
  EXPECT_NE(error.find("other options or texts: 'rate 0.003"), std::string::npos) << error;
  save_butler(trainer.weights(), setup.engine.fingerprint(), path, SafetensorsType::kF32);
  EXPECT_NE(error_of_resume(setup.engine, short_training(), path).find("no checkpoint"), std::string::npos);
  write_file_atomically(path, std::vector<std::byte>(100));
  EXPECT_NE(error_of_resume(setup.engine, short_training(), path), "no error");
}

TEST_F(ButlerTrainerTest, CheckpointsWithOtherValuesThanATrainingsAreRefused) {
  TinyTeacher setup;
  const std::string path = folder / "t.state", changed = folder / "changed.state";
  ButlerTrainer trainer = trainer_of(setup.engine, short_training());
  trainer.start();
  for (int i = 0; i < 5; ++i) trainer.step();  // validated before the first step and after four
  trainer.save(path);
  const auto refused = [&](const char* says, const auto& change) {
    State state(path);
    change(state);
    state.write(changed);
    const std::string error = error_of_resume(setup.engine, short_training(), changed);
    EXPECT_NE(error.find(says), std::string::npos) << error;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  refused("no error", [](State&) {});
  for (const char* name : {"parameters", "first_moments", "second_moments", "losses", "checks"}) {
    refused("no training has", [&](State& s) { s.tensors[name].back() = nan; });
    refused("no training has", [&](State& s) { s.tensors[name].front() = -INFINITY; });
    refused("no tensor", [&](State& s) { s.tensors.erase(name); });
  }
  for (const char* name : {"parameters", "first_moments", "second_moments"}) {
    refused(name, [&](State& s) { s.tensors[name].pop_back(); });
    refused(name, [&](State& s) { s.tensors[name].push_back(0); });
  }
  refused("no training has", [](State& s) { s.tensors["second_moments"][3] = -1e-9f; });
  const auto damaged = [&](const auto& change) {
    refused("damaged", [&](State& s) { change(s.tensors["checks"]); });
  };
  damaged([](std::vector<float>& checks) { checks[0] = 1; });                     // not when it was due
  damaged([](std::vector<float>& checks) { checks[0] = 0.5f; });                  // no number of steps
  damaged([](std::vector<float>& checks) { checks[0] = 4; });                     // twice the same
  damaged([](std::vector<float>& checks) { checks[1] = 0; });                     // no rows
  damaged([](std::vector<float>& checks) { checks[1] = 1e18f; });                 // more than can be
  damaged([](std::vector<float>& checks) { checks[2] = 1.5f; });                  // more than all
  damaged([](std::vector<float>& checks) { checks[2] = -0.1f; });                 // less than nothing
  damaged([](std::vector<float>& checks) { checks.resize(checks.size() / 2); });  // one is missing
  damaged([](std::vector<float>& checks) { checks.clear(); });
  damaged([](std::vector<float>& checks) { checks.pop_back(); });
  refused("damaged", [](State& s) { s.tensors["losses"].resize(3); });
  refused("damaged", [](State& s) { s.tensors["losses"].resize(7, 0.1f); });  // of six steps
  refused("damaged", [](State& s) { s.tensors["losses"].resize(6, 0.1f); });  // done, and not validated
  refused("instruction set", [](State& s) { s.texts["isa"] = "\x1b[31m"; });
  refused("instruction set", [](State& s) { s.texts.erase("isa"); });
  refused("'rate \\x1b[31m", [](State& s) {
    std::string& settings = s.texts["settings"];
    settings.replace(settings.find("rate ") + 5, 3, "\x1b[31m");
  });
  refused("here", [](State& s) { s.texts["settings"].clear(); });
}

TEST_F(ButlerTrainerTest, KnowsWhichInstructionSetsHaveComputedIt) {
  TinyTeacher setup;
  const std::string path = folder / "t.state";
  ButlerTrainer trainer = trainer_of(setup.engine, short_training());
  EXPECT_EQ(trainer.isa(), Engine::isa());
  trainer.start();
  trainer.save(path);
  trainer.resume(path);
  EXPECT_EQ(trainer.isa(), Engine::isa());
  State state(path);
  state.texts["isa"] = "other";
  state.write(path);
  for (int i = 0; i < 2; ++i) {
    trainer.resume(path);
    EXPECT_EQ(trainer.isa(), std::string("other+") + Engine::isa());
    trainer.save(path);
  }
}

TEST_F(ButlerTrainerTest, AMarkIsOfOptionsAndTexts) {
  TinyTeacher setup;
  ButlerTraining training = short_training();
  const std::string mark = trainer_of(setup.engine, training).mark();
  EXPECT_EQ(mark.size(), 16u);
  EXPECT_EQ(trainer_of(setup.engine, training).mark(), mark);
  EXPECT_NE(
      ButlerTrainer(setup.engine, training, {text_of(1000, 1), text_of(300, 4)}, text_of(400, 3)).mark(),
      mark);
  EXPECT_NE(
      ButlerTrainer(setup.engine, training, {text_of(1000, 1), text_of(300, 2)}, text_of(400, 4)).mark(),
      mark);
  training.seed = 1;
  EXPECT_NE(trainer_of(setup.engine, training).mark(), mark);
}

// With this rate the first update leaves nothing that the second could go on from.
TEST_F(ButlerTrainerTest, AStepThatIsNotFiniteIsNotMade) {
  TinyTeacher setup;
  ButlerTraining training = short_training();
  training.learning_rate = 1e30;
  ButlerTrainer trainer = trainer_of(setup.engine, training);
  trainer.start();
  const auto before = encode_butler(trainer.weights(), setup.engine.fingerprint(), SafetensorsType::kF32);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      trainer.step();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("step 1: the "), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(" is not finite"), std::string::npos) << error.what();
    }
    EXPECT_EQ(trainer.n_steps_done(), 0u);
    EXPECT_EQ(encode_butler(trainer.weights(), setup.engine.fingerprint(), SafetensorsType::kF32), before);
  }
}

// Interrupted before any of its sequences, what is done again gives the same.
TEST_F(ButlerTrainerTest, WhatThePollThrowsChangesNothing) {
  struct Stopped {};
  TinyTeacher setup;
  const ButlerTraining training = short_training();
  const auto whole = trained(setup.engine, training);
  ButlerTrainer trainer = trainer_of(setup.engine, training);
  size_t calls = 0, until = 1, n_stopped = 0;
  trainer.set_poll([&] {
    if (++calls == until) throw Stopped{};
  });
  const auto insist = [&](const auto& work) {  // stopped before the first sequence, before the second, ...
    for (until = 1;; ++until, ++n_stopped) {
      calls = 0;
      try {
        return work();
      } catch (const Stopped&) {
      }
    }
  };
  insist([&] { trainer.start(); });
  EXPECT_EQ(n_stopped, 2 * training.n_start + training.n_validation);
  while (!trainer.is_done()) insist([&] { trainer.step(); });
  EXPECT_EQ(n_stopped, 2 * training.n_start + training.n_validation + training.n_steps * training.batch);
  EXPECT_EQ(encode_butler(trainer.weights(), setup.engine.fingerprint(), SafetensorsType::kF32), whole);
}

TEST_F(ButlerTrainerTest, SequencesOfAValidationDoNotOverlap) {
  TinyTeacher setup;
  ButlerTraining training = short_training();
  training.n_validation = 9;
  ButlerTrainer trainer = trainer_of(setup.engine, training);
  EXPECT_EQ(trainer.n_validation(), 3u);  // 400 tokens, 128 each
  trainer.start();
  EXPECT_EQ(trainer.checks().front().quality.n_rows, 3 * training.n_validation_rows);
}

TEST_F(ButlerTrainerTest, SaysWhatItKeepsAndRefusesWhatDoesNotFit) {
  TinyTeacher setup;
  ButlerTraining training = short_training();
  const ButlerTrainer trainer = trainer_of(setup.engine, training);
  ButlerExample<float> example;
  ButlerTeacher teacher(setup.engine, trainer.geometry());
  teacher.show(text_of(128, 1), std::array<size_t, 8>{60, 61, 70, 80, 90, 100, 120, 127}, example);
  uint64_t n_bytes = example.rows.size() * sizeof(size_t);
  for (const auto* all : {&example.inputs, &example.queries, &example.keys}) {
    for (const auto& values : *all) n_bytes += values.size() * sizeof(float);
  }
  EXPECT_EQ(trainer.validation_bytes(), 2 * n_bytes);
  EXPECT_GT(trainer.needed_bytes(), 4 * n_bytes);
  training.batch = 1'000'000'000;
  try {
    trainer_of(setup.engine, training);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the machine has"), std::string::npos) << error.what();
  }
}

TEST_F(ButlerTrainerTest, OptionsThatCannotBeMeantAreRefused) {
  TinyTeacher setup;
  const auto refused = [&](const auto& change, const char* says) {
    ButlerTraining training = short_training();
    change(training);
    try {
      trainer_of(setup.engine, training);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused([](ButlerTraining& t) { t.stride = 6; }, "stride");
  refused([](ButlerTraining& t) { t.dim = 17; }, "head size");
  refused([](ButlerTraining& t) { t.hidden = 0; }, "hidden");
  refused([](ButlerTraining& t) { t.seq_tokens = 257; }, "context of 256");
  refused([](ButlerTraining& t) { t.mask.local = 100; }, "twice as many");
  refused([](ButlerTraining& t) { t.n_rows = 0; }, "at least 1");
  EXPECT_THROW(ButlerTrainer(setup.engine, short_training(), {text_of(127, 1)}, text_of(400, 3)), Error);
  EXPECT_THROW(ButlerTrainer(setup.engine, short_training(), {text_of(400, 1)}, text_of(127, 3)), Error);
  EXPECT_THROW(ButlerTrainer(setup.engine, short_training(), {}, text_of(400, 3)), Error);
}

TEST_F(ButlerTrainerTest, TheRateRisesAndFalls) {
  TinyTeacher setup;
  ButlerTraining training = short_training();
  training.n_steps = 100;
  const ButlerTrainer trainer = trainer_of(setup.engine, training);
  EXPECT_DOUBLE_EQ(trainer.learning_rate(0), training.learning_rate / 10);  // of ten updates that warm up
  EXPECT_DOUBLE_EQ(trainer.learning_rate(5), training.learning_rate);
  for (size_t step = 6; step < 100; ++step)
    EXPECT_LT(trainer.learning_rate(step), trainer.learning_rate(step - 1));
  EXPECT_LT(trainer.learning_rate(99), 0.03 * training.learning_rate);
}

// A fit needs no step to be better than chance, and steps make the loss less than it began with.
TEST_F(ButlerTrainerTest, LearnsOnItsOwnText) {
  TinyTeacher setup;
  ButlerTraining training = short_training();
  training.n_steps = 60;
  training.validate_every = 0;
  training.n_start = 12;
  const auto losses_of = [&](ButlerStart start) {
    training.start = start;
    ButlerTrainer trainer = trainer_of(setup.engine, training);
    trainer.start();
    while (!trainer.is_done()) trainer.step();
    return trainer.losses();
  };
  const std::vector<float> fitted = losses_of(ButlerStart::kFitted);
  const std::vector<float> random = losses_of(ButlerStart::kRandom);
  const auto mean = [](const std::vector<float>& losses, size_t first) {
    float sum = 0;
    for (size_t i = first; i < first + 10; ++i) sum += losses[i] / 10;
    return sum;
  };
  EXPECT_LT(mean(fitted, 0), mean(random, 0));
  EXPECT_LT(mean(fitted, 50), mean(fitted, 0));
  EXPECT_LT(mean(random, 50), mean(random, 0));
  for (const float loss : fitted) EXPECT_GE(loss, 0);
}

}  // namespace
}  // namespace quire
