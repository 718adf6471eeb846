#include "text/dialogue.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "test_vocabulary.h"

namespace quire {
namespace {

Tokenizer chat_tokenizer() {
  TestVocabulary v;
  for (const char* control : {"<|im_start|>", "<|im_end|>"}) v.add(control, kTokenControl);
  return Tokenizer(v.view());
}

// A conversation as a program holds it: the sequence of a cache, answers that a model might give.
class Talk {
 public:
  explicit Talk(const std::string& source) : template_(source), dialogue_(template_, tokenizer_) {}

  Dialogue::Turn say(const std::string& text) {
    Dialogue::Turn turn = dialogue_.prepare({{"user", text, {}}}, sequence_);
    sequence_.resize(turn.n_keep);
    sequence_.insert(sequence_.end(), turn.tokens.begin(), turn.tokens.end());
    dialogue_.accept(turn);
    return turn;
  }
  void answer(const std::string& text) {
    tokenizer_.encode_append(text, ControlTokens::kAsText, sequence_);
    dialogue_.answered(text, sequence_.size());
  }
  // An answer that ended before a stop string.
  void answer_until(const std::string& text, const std::string& stop) {
    tokenizer_.encode_append(text + stop, ControlTokens::kAsText, sequence_);
    dialogue_.answered(text, 0);
  }
  std::string text() const { return tokenizer_.decode(sequence_, true); }
  size_t size() const { return sequence_.size(); }

  Tokenizer tokenizer_ = chat_tokenizer();
  ChatTemplate template_;
  Dialogue dialogue_;
  std::vector<int32_t> sequence_;
};

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// Leaves the reasoning of earlier answers out.
constexpr const char* kReasoning =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|im_end|>{% endfor %}"
    "{{ '<|im_start|>assistant\\n' }}";

TEST(Dialogue, EachTurnAddsOnlyWhatIsNew) {
  Talk talk(kChatMl);
  EXPECT_EQ(talk.say("Hi").n_keep, 0u);
  EXPECT_EQ(talk.text(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  talk.answer("Hello <|im_end|>!");  // not the marker, but its text
  const size_t n_before = talk.size();
  const Dialogue::Turn turn = talk.say("Again");
  EXPECT_EQ(turn.n_keep, n_before);
  EXPECT_EQ(talk.tokenizer_.decode(turn.tokens, true),
            "<|im_end|>\n<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Dialogue, SaysHowMuchOfTheSequenceHolds) {
  Talk talk(kReasoning);
  talk.say("How much?");
  const size_t n_before = talk.size();
  talk.answer("let me see</think>Three.");
  const Dialogue::Turn turn = talk.say("And now?");
  EXPECT_EQ(turn.n_keep, n_before);
  EXPECT_EQ(talk.text(),
            "<|im_start|>user\nHow much?<|im_end|><|im_start|>assistant\nThree.<|im_end|>"
            "<|im_start|>user\nAnd now?<|im_end|><|im_start|>assistant\n");
}

TEST(Dialogue, TrimmedAnswersCostTheirEndOnly) {
  Talk talk("{% for m in messages %}{{ m.content|trim }}<|im_end|>{% endfor %}");
  talk.say("Hi");
  talk.answer("Hello \n");
  EXPECT_EQ(talk.say("x").n_keep, talk.tokenizer_.encode("Hi<|im_end|>Hello", ControlTokens::kParse).size());
  EXPECT_EQ(talk.text(), "Hi<|im_end|>Hello<|im_end|>x<|im_end|>");
}

TEST(Dialogue, AStopStringDoesNotStayInTheConversation) {
  for (const bool loaded : {false, true}) {
    Talk talk(kChatMl);
    if (loaded) {
      talk.sequence_ = talk.tokenizer_.encode("<|im_start|>whatever was there", ControlTokens::kParse);
      talk.dialogue_.begin(talk.size());
    }
    talk.say("Hi");
    talk.answer_until("Hello", "STOP and more");
    const size_t n_answered = talk.size() - std::string("STOP and more").size();
    EXPECT_EQ(talk.say("Again").n_keep, n_answered);
    EXPECT_TRUE(
        talk.text().ends_with("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
                              "<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n"))
        << talk.text();
  }
}

TEST(Dialogue, AMessageThatWasNotTakenIsForgotten) {
  Talk talk(kChatMl);
  talk.say("Hi");
  talk.answer("Hello");
  const auto before = talk.sequence_;
  (void)talk.dialogue_.prepare({{"user", "never sent", {}}}, talk.sequence_);
  talk.sequence_.resize(before.size() - 2);  // a cache that lost its end
  talk.say("sent");
  EXPECT_EQ(talk.text(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\nsent<|im_end|>\n<|im_start|>assistant\n");
}

TEST(Dialogue, GoesOnBehindASequenceThatIsNotKnown) {
  for (const char* source : {kChatMl, kReasoning}) {
    Talk talk(source);
    talk.sequence_ = talk.tokenizer_.encode("<|im_start|>whatever was there", ControlTokens::kParse);
    const size_t n_loaded = talk.size();
    talk.dialogue_.begin(n_loaded);
    EXPECT_FALSE(talk.dialogue_.empty());
    EXPECT_EQ(talk.say("one").n_keep, n_loaded);
    talk.answer("think</think>two");
    EXPECT_GE(talk.say("three").n_keep, n_loaded);
    EXPECT_TRUE(talk.text().starts_with("<|im_start|>whatever was there<|im_end|>")) << talk.text();
    EXPECT_TRUE(talk.text().ends_with("two<|im_end|>" + std::string(source == kChatMl ? "\n" : "") +
                                      "<|im_start|>user\nthree<|im_end|>" + (source == kChatMl ? "\n" : "") +
                                      "<|im_start|>assistant\n"))
        << talk.text();
  }
}

TEST(Dialogue, RefusalsOfTheTemplateLeaveItAsItWas) {
  Talk talk(
      "{% for m in messages %}{% if m.content == 'bad' %}{{ raise_exception('bad') }}{% endif %}"
      "{{ m.content }}|{% endfor %}");
  talk.say("a");
  talk.answer("b");
  EXPECT_THROW(talk.say("bad"), Error);
  talk.say("c");
  EXPECT_EQ(talk.text(), "a|b|c|");
}

TEST(Dialogue, BeginsAnew) {
  Talk talk(kChatMl);
  talk.say("a");
  talk.answer("b");
  talk.dialogue_.begin(0);
  talk.sequence_.clear();
  EXPECT_TRUE(talk.dialogue_.empty());
  EXPECT_EQ(talk.say("c").n_keep, 0u);
  EXPECT_EQ(talk.text(), "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
}

}  // namespace
}  // namespace quire
