#include "engine/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "engine/vocabulary_reader.h"
#include "unit/engine/tiny_model.h"

namespace quire {
namespace {

using test::TinyEngine;

// Greedy and without an end, so that the length is known.
Sampler greedy(const Engine& engine) {
  SamplingOptions options;
  options.temperature = 0;
  options.banned = end_tokens(engine.tokenizer());
  return Sampler(options);
}

Generation continue_prompt(Engine& engine, size_t n_prompt, size_t n, const SessionOptions& options = {}) {
  Session session(engine, options);
  session.prefill(test::tiny_prompt(n_prompt));
  Sampler sampler = greedy(engine);
  return session.generate(sampler, {.max_tokens = n});
}

TEST(Session, GeneratesAsManyAsAsked) {
  TinyEngine tiny;
  const Generation result = continue_prompt(tiny.engine, 10, 20);
  EXPECT_EQ(result.tokens.size(), 20u);
  EXPECT_EQ(result.finish, FinishReason::kLength);
  EXPECT_EQ(result.n_steps, 19u);  // the first token comes from the prefill's logits
  // The 19 steps read 11 to 29 tokens.
  EXPECT_EQ(result.bytes_read, test::kTinyTokenBytes * (11 + 29) * 19 / 2);
}

TEST(Session, StepsOfThePrefillDoNotMatter) {
  TinyEngine tiny;
  const std::vector<int32_t> whole = continue_prompt(tiny.engine, 100, 12).tokens;
  for (const size_t step : {1, 7, 64, 99, 100, 1000}) {
    EXPECT_EQ(continue_prompt(tiny.engine, 100, 12, {.step_tokens = step}).tokens, whole) << step;
  }
}

TEST(Session, ThreadsDoNotMatter) {
  TinyEngine one({.n_threads = 1});
  TinyEngine three({.n_threads = 3});
  EXPECT_EQ(continue_prompt(one.engine, 70, 30).tokens, continue_prompt(three.engine, 70, 30).tokens);
}

TEST(Session, GeneratingInPartsIsTheSame) {
  TinyEngine tiny;
  Session session(tiny.engine, {});
  session.prefill(test::tiny_prompt(9));
  Sampler sampler = greedy(tiny.engine);
  std::vector<int32_t> parts = session.generate(sampler, {.max_tokens = 4}).tokens;
  const Generation rest = session.generate(sampler, {.max_tokens = 5});
  parts.insert(parts.end(), rest.tokens.begin(), rest.tokens.end());
  EXPECT_EQ(parts, continue_prompt(tiny.engine, 9, 9).tokens);
}

TEST(Session, PrefillComputesOnlyWhatIsNew) {
  TinyEngine tiny;
  Session session(tiny.engine, {});
  const PrefillResult first = session.prefill(test::tiny_prompt(9));
  EXPECT_EQ(first.n_computed, 9u);
  EXPECT_EQ(first.n_reused, 0u);
  Sampler sampler = greedy(tiny.engine);
  session.generate(sampler, {.max_tokens = 4});
  EXPECT_EQ(session.tokens().size(), 13u);
  EXPECT_EQ(session.cache().n_tokens(), 12u);  // the last one chosen was not needed yet
  const PrefillResult second = session.prefill(test::tiny_prompt(5));
  EXPECT_EQ(second.n_computed, 6u);
  EXPECT_EQ(second.n_reused, 12u);
}

TEST(Session, ContinuedSequenceEqualsOneComputedAtOnce) {
  TinyEngine tiny;
  Session grown(tiny.engine, {});
  grown.prefill(test::tiny_prompt(9));
  Sampler sampler = greedy(tiny.engine);
  grown.generate(sampler, {.max_tokens = 6});
  grown.prefill(test::tiny_prompt(20));
  Session fresh(tiny.engine, {});
  fresh.prefill(grown.tokens());
  Sampler again = greedy(tiny.engine);
  EXPECT_EQ(grown.generate(sampler, {.max_tokens = 10}).tokens,
            fresh.generate(again, {.max_tokens = 10}).tokens);
}

TEST(Session, CropAndContinueIsTheSame) {
  TinyEngine tiny;
  Session session(tiny.engine, {});
  session.prefill(test::tiny_prompt(80));
  Sampler sampler = greedy(tiny.engine);
  const std::vector<int32_t> first = session.generate(sampler, {.max_tokens = 10}).tokens;
  session.crop(80);
  EXPECT_EQ(session.generate(sampler, {.max_tokens = 10}).tokens, first);
  session.crop(0);
  EXPECT_THROW(session.generate(sampler, {.max_tokens = 1}), Error);
  session.prefill(test::tiny_prompt(80));
  EXPECT_EQ(session.generate(sampler, {.max_tokens = 10}).tokens, first);
}

TEST(Session, PromptOverTheContextIsRefusedWithBothNumbers) {
  TinyEngine tiny;
  Session session(tiny.engine, {.context_tokens = 50});
  session.prefill(test::tiny_prompt(20));
  try {
    session.prefill(test::tiny_prompt(31));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("51"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("50"), std::string::npos) << error.what();
  }
  EXPECT_EQ(session.tokens().size(), 20u);
  EXPECT_EQ(session.prefill(test::tiny_prompt(30)).n_computed, 30u);
}

TEST(Session, ContextOverTheModelIsRefused) {
  TinyEngine tiny;
  EXPECT_THROW(Session(tiny.engine, {.context_tokens = test::kTinyContext + 1}), Error);
}

TEST(Session, EndsAtTheContext) {
  TinyEngine tiny;
  const Generation result = continue_prompt(tiny.engine, 20, 1000, {.context_tokens = 70});
  EXPECT_EQ(result.tokens.size(), 50u);
  EXPECT_EQ(result.finish, FinishReason::kContext);
}

TEST(Session, EndsAtTheBudget) {
  TinyEngine tiny({.n_threads = 1, .kv_budget_bytes = 64 * test::kTinyTokenBytes});
  const Generation result = continue_prompt(tiny.engine, 20, 1000);
  EXPECT_EQ(result.finish, FinishReason::kBudget);
  EXPECT_EQ(result.tokens.size(), 64u - 20 + 1);
  Session session(tiny.engine, {});
  EXPECT_THROW(session.prefill(test::tiny_prompt(65)), Error);
  EXPECT_EQ(session.cache().size_bytes(), 0u);
  EXPECT_EQ(session.prefill(test::tiny_prompt(64)).n_computed, 64u);
}

TEST(Session, TokensOutsideTheVocabularyAreRefused) {
  TinyEngine tiny;
  Session session(tiny.engine, {});
  EXPECT_THROW(session.prefill(std::vector<int32_t>{1, 259}), Error);
  EXPECT_THROW(session.prefill(std::vector<int32_t>{-1}), Error);
  EXPECT_TRUE(session.tokens().empty());
}

TEST(Session, StopFlagInterrupts) {
  TinyEngine tiny;
  std::atomic<bool> stop{false};
  Session session(tiny.engine, {});
  session.prefill(test::tiny_prompt(5));
  Sampler sampler = greedy(tiny.engine);
  size_t n_pieces = 0;
  const Generation result =
      session.generate(sampler, {.stop_flag = &stop}, [&](std::string_view) { stop = ++n_pieces == 3; });
  EXPECT_EQ(result.finish, FinishReason::kInterrupted);
  stop = true;
  const size_t before = session.tokens().size();
  EXPECT_TRUE(session.prefill(test::tiny_prompt(5), {.stop_flag = &stop}).interrupted);
  EXPECT_EQ(session.tokens().size(), before);
}

TEST(Session, SurvivesAThrowingCallback) {
  TinyEngine tiny;
  Session session(tiny.engine, {});
  session.prefill(test::tiny_prompt(9));
  Sampler sampler = greedy(tiny.engine);
  EXPECT_THROW(session.generate(sampler, {.max_tokens = 50}, [](std::string_view) { throw 1; }), int);
  session.crop(9);
  EXPECT_EQ(session.generate(sampler, {.max_tokens = 9}).tokens, continue_prompt(tiny.engine, 9, 9).tokens);
}

TEST(Session, StopStringCutsTheText) {
  TinyEngine tiny;
  const std::string free = continue_prompt(tiny.engine, 9, 60).text;
  ASSERT_GT(free.size(), 12u);
  const std::string stop = free.substr(5, 3);
  Session session(tiny.engine, {});
  session.prefill(test::tiny_prompt(9));
  Sampler sampler = greedy(tiny.engine);
  const Generation cut = session.generate(sampler, {.max_tokens = 60, .stops = {stop}});
  EXPECT_EQ(cut.text, free.substr(0, free.find(stop)));
  EXPECT_EQ(cut.finish, FinishReason::kStopString);
}

TEST(Session, EndTokenEndsAndIsNotKept) {
  TinyEngine tiny;
  SamplingOptions options;
  options.temperature = 0;
  for (int32_t id = 0; id < tiny.engine.tokenizer().size(); ++id) {
    if (id != test::kTinyEnd) options.banned.push_back(id);
  }
  Session session(tiny.engine, {});
  session.prefill(test::tiny_prompt(9));
  Sampler sampler(options);
  const Generation result = session.generate(sampler, {});
  EXPECT_EQ(result.finish, FinishReason::kEnd);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(session.tokens().size(), 9u);
}

TEST(Session, ConcurrentSessionsEqualSingleOnes) {
  TinyEngine tiny;
  std::vector<std::vector<int32_t>> expected;
  for (size_t i = 0; i < 3; ++i) expected.push_back(continue_prompt(tiny.engine, 10 + 30 * i, 15).tokens);
  std::vector<std::vector<int32_t>> got(expected.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] { got[i] = continue_prompt(tiny.engine, 10 + 30 * i, 15).tokens; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, expected);
}

TEST(Session, PagesGoBackToThePool) {
  TinyEngine tiny;
  continue_prompt(tiny.engine, 100, 10);
  EXPECT_EQ(tiny.engine.pool().used_bytes(), 0u);
}

TEST(Engine, HasTheModelsChatTemplateOrOneThatFits) {
  const std::vector<ChatMessage> chat{{"user", "Hi", {}}};
  const auto text_of = [&](const char* own, const std::string& given) {
    test::TinyModel model;
    if (own != nullptr) model.writer.add("tokenizer.chat_template", own);
    const test::Bytes bytes = model.build();
    const Engine engine(GgufFile::from_memory(bytes, "chat.gguf"), {.n_threads = 1, .chat_template = given});
    return engine.chat_template().render(chat, true).bytes();
  };
  const std::string chatml = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(text_of(nullptr, ""), chatml);  // the vocabulary has its tokens
  EXPECT_EQ(text_of("[{{ messages[0].content }}{{ eos_token }}]", ""), "[Hi<|im_end|>]");
  EXPECT_EQ(text_of("{{ broken", "chatml"), chatml);
  EXPECT_EQ(text_of("{{ broken", "<{{ messages[0].role }}>"), "<user>");
  EXPECT_THROW(text_of("{{ broken", ""), Error);  // when it is asked for
  EXPECT_THROW(text_of(nullptr, "{{ broken"), Error);
}

TEST(Engine, RefusesAbsurdThreadCounts) {
  EXPECT_THROW(TinyEngine({.n_threads = -1}), Error);
  EXPECT_THROW(TinyEngine({.n_threads = kMaxThreads + 1}), Error);
}

TEST(EncodePrompt, AddsTheBeginTokenOnce) {
  test::TinyModel model;
  model.writer.add<uint32_t>("tokenizer.ggml.bos_token_id", 258)
      .add<bool>("tokenizer.ggml.add_bos_token", true);
  const test::Bytes bytes = model.build();
  const GgufFile file = GgufFile::from_memory(bytes, "bos.gguf");
  const Tokenizer tokenizer(read_vocabulary(file));
  EXPECT_EQ(encode_prompt(tokenizer, "A", ControlTokens::kParse), (std::vector<int32_t>{258, 'A'}));
  EXPECT_EQ(encode_prompt(tokenizer, "<|endoftext|>A", ControlTokens::kParse),
            (std::vector<int32_t>{258, 'A'}));
  EXPECT_EQ(encode_prompt(tokenizer, "", ControlTokens::kParse), (std::vector<int32_t>{258}));
}

}  // namespace
}  // namespace quire
