#include "study/butler_trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/atomic_file.h"
#include "base/error.h"
#include "engine/butler_file.h"
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
  EXPECT_NE(error_of_resume(setup.engine, training, path).find("other options or texts"), std::string::npos);
  save_butler(trainer.weights(), setup.engine.fingerprint(), path, SafetensorsType::kF32);
  EXPECT_NE(error_of_resume(setup.engine, short_training(), path).find("no checkpoint"), std::string::npos);
  write_file_atomically(path, std::vector<std::byte>(100));
  EXPECT_NE(error_of_resume(setup.engine, short_training(), path), "no error");
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
