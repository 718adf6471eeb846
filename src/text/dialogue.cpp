#include "text/dialogue.h"

#include <algorithm>
#include <utility>

namespace quire {

void Dialogue::begin(size_t n_tokens) {
  messages_.clear();
  n_unknown_ = n_tokens;
  text_.clear();
  n_sequence_ = 0;
}

Dialogue::Turn Dialogue::prepare(std::vector<ChatMessage> messages, std::span<const int32_t> sequence) const {
  std::vector<ChatMessage> all = n_unknown_ > 0 ? unknown_turns() : std::vector<ChatMessage>();
  all.insert(all.end(), messages_.begin(), messages_.end());
  all.insert(all.end(), messages.begin(), messages.end());
  const jinja::Text text = template_.render(all, true);
  Turn turn;
  turn.messages = std::move(messages);
  turn.text = text.bytes();
  const bool goes_on = n_sequence_ > 0 && sequence.size() == n_sequence_ && turn.text.starts_with(text_);
  if (goes_on) {
    turn.n_keep = sequence.size();
    turn.tokens =
        encode_rendered_behind(tokenizer_, text.part(text_.size(), text.size() - text_.size()), sequence);
    return turn;
  }
  // From the first message that is known; what the sequence has in common with it holds.
  std::vector<int32_t> ids;
  if (n_unknown_ > 0) {
    ids = encode_rendered_behind(tokenizer_, text_behind_unknown_turns(text), sequence.first(n_unknown_));
  } else {
    ids = encode_rendered(tokenizer_, text);
  }
  const auto known = sequence.subspan(n_unknown_);
  const auto differ = std::mismatch(ids.begin(), ids.end(), known.begin(), known.end()).first;
  turn.n_keep = n_unknown_ + static_cast<size_t>(differ - ids.begin());
  turn.tokens.assign(differ, ids.end());
  return turn;
}

void Dialogue::accept(Turn turn) {
  for (ChatMessage& message : turn.messages) messages_.push_back(std::move(message));
  text_ = std::move(turn.text);
  n_sequence_ = 0;
}

void Dialogue::answered(std::string text, size_t n_sequence) {
  text_ += text;
  n_sequence_ = n_sequence;
  messages_.push_back({"assistant", std::move(text), {}});
}

}  // namespace quire
