// --save-kv and --load-kv: how a sequence is kept between runs, and how a prompt joins one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "any_session.h"
#include "engine/session_file.h"
#include "options.h"

namespace quire::cli {

struct KvFiles {
  std::string save;
  std::string load;
  bool append = false;
};

void add_kv_files(CLI::App& app, KvFiles& files);

// What `quire run` and `quire chat` do with these files; figures of it.
class SavedSequence {
 public:
  // A prompt on top of what was loaded, in both the forms it can take.
  struct Prompt {
    std::vector<int32_t> whole;                    // as one that begins a sequence; empty: there is none
    size_t n_fixed = 0;                            // its first tokens, which every prompt has
    std::function<std::vector<int32_t>()> behind;  // as one that comes behind others
  };

  // Opens the file to load and tries the place to save at, so that what cannot be is refused before a model
  // is loaded. The file's recipe becomes that of the session, unless the user named one, which then must be
  // the same.
  SavedSequence(const KvFiles& files, const ModelOptions& model, SessionOptions& options);

  bool loads() const { return !files_.load.empty(); }
  bool saves() const { return !files_.save.empty(); }

  // Of what was loaded together with the prompt, as join() will have it. Before load().
  size_t n_joined_tokens(const Prompt& prompt) const;
  size_t n_saved_tokens() const { return saved_ ? saved_->tokens().size() : 0; }
  // Tokens of a context whose coded pages are as many as the file has: more than its tokens where these were
  // cut after they were coded. Before load().
  size_t n_room_tokens() const;

  // Before a session is made.
  void check_model(const Engine& engine) const;
  void load(AnySession& session);
  void save(const AnySession& session);

  // Cuts the session to what the prompt has in common with it, if so, says in one sentence what happens, and
  // returns the tokens to be added.
  std::vector<int32_t> join(AnySession& session, const Prompt& prompt) const;

  size_t n_loaded = 0;
  double load_seconds = 0;  // checking the file, and taking it over
  double save_seconds = 0;
  uint64_t file_bytes = 0;  // of the file saved

 private:
  void reuse(AnySession& session, size_t n_common, size_t n_prompt) const;

  KvFiles files_;
  std::optional<SavedSession> saved_;
};

}  // namespace quire::cli
