// Chat messages to token ids, in the form the model was trained on: by the model's own Jinja template.
// Control tokens come from the template's text alone; what people wrote never becomes one, whatever it says,
// also not together with the text around it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/template.h"
#include "text/tokenizer.h"

namespace quire {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", or what else the template knows
  std::string content;
  // Further members, which templates know by names such as "tool_calls" or "reasoning_content"; one that is
  // named "content" takes the place of the text.
  jinja::DataObject more = {};
};

// Immutable and cheap to copy; any number of threads may use it at once.
class ChatTemplate {
 public:
  // The template of this text, with the texts of the tokens that begin and end a sequence, which it knows as
  // bos_token and eos_token. Throws Error with the line for what is no template.
  explicit ChatTemplate(std::string_view jinja_text, std::string bos_text = {}, std::string eos_text = {});

  // ChatML: <|im_start|>ROLE\nCONTENT<|im_end|>\n for each message.
  static ChatTemplate chatml();

  // What the template prints, with the origin of each byte. `variables` are further names that it may use:
  // "tools", "documents", "enable_thinking". Throws Error where the template refuses the messages, with its
  // own reason.
  jinja::Text render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                     const jinja::DataObject& variables = {}) const;

  // The whole conversation as the start of a sequence. With `add_generation_prompt` it ends where the
  // assistant's answer begins. Where the vocabulary wants a begin token and the template prints none, it
  // comes first all the same.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                              bool add_generation_prompt) const;

  // What has to follow an answer that a sequence ends with, of a conversation that is not known otherwise:
  // the end of the answer, then these messages, up to where the next answer begins. Throws Error where the
  // template does not print what comes after an answer.
  std::vector<int32_t> encode_behind(const Tokenizer& tokenizer, std::span<const ChatMessage> messages) const;

 private:
  jinja::Template template_;
  std::string bos_text_;
  std::string eos_text_;
};

// Ids of a rendered text that begins a sequence, and of one that follows the tokens `before`.
std::vector<int32_t> encode_rendered(const Tokenizer& tokenizer, const jinja::Text& text);
std::vector<int32_t> encode_rendered_behind(const Tokenizer& tokenizer, const jinja::Text& text,
                                            std::span<const int32_t> before);

// A turn of a user and an answer that stand for all that came before, and the answer's text, by which its end
// is found.
std::vector<ChatMessage> unknown_turns();
// The text behind that answer. Throws Error where the template does not print the answer.
jinja::Text text_behind_unknown_turns(const jinja::Text& text);

}  // namespace quire
