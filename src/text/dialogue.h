// A conversation on top of a sequence of tokens that is computed already, of which each turn should compute
// only what is new. Templates may print earlier turns otherwise once others follow (a date, reasoning that is
// left out): then the dialogue says how much of the sequence still holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire {

// For each turn: prepare(), cut the sequence to n_keep and compute the tokens behind it, accept(), let the
// model answer, answered(). A turn that is not accepted leaves everything as it was. Template and tokenizer
// outlive it.
class Dialogue {
 public:
  struct Turn {
    size_t n_keep = 0;            // tokens of the sequence that hold; the others have to go
    std::vector<int32_t> tokens;  // what comes behind them, up to where the answer begins
    std::vector<ChatMessage> messages;
    std::string text;  // of the whole conversation, as the template prints it
  };

  Dialogue(const ChatTemplate& chat_template, const Tokenizer& tokenizer)
      : template_(chat_template), tokenizer_(tokenizer) {}

  // Anew, behind n_tokens of a sequence whose messages are not known and which ends with an answer; 0: at its
  // start.
  void begin(size_t n_tokens);
  // No message was accepted since, and nothing was there before.
  bool empty() const { return n_unknown_ == 0 && messages_.empty(); }

  // The next messages, which the model is to answer. `sequence` is all there is, the last answer included.
  // Throws Error where the template refuses the conversation.
  Turn prepare(std::vector<ChatMessage> messages, std::span<const int32_t> sequence) const;
  void accept(Turn turn);
  // What the model said, and the tokens of the sequence with it; 0: the sequence holds more behind the
  // answer, such as a stop string, which the next turn cuts.
  void answered(std::string text, size_t n_sequence);

 private:
  const ChatTemplate& template_;
  const Tokenizer& tokenizer_;
  std::vector<ChatMessage> messages_;  // accepted ones and answers
  size_t n_unknown_ = 0;               // tokens before the first message
  std::string text_;                   // as it was printed up to the last answer, the answer included
  size_t n_sequence_ = 0;              // tokens of that; 0: not known
};

}  // namespace quire
