#include "saved_sequence.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "engine/joining.h"
#include "terminal.h"
#include "timing.h"

namespace quire::cli {
namespace {

std::string tokens_text(size_t n) { return std::to_string(n) + (n == 1 ? " token" : " tokens"); }

}  // namespace

void add_kv_files(CLI::App& app, KvFiles& files) {
  app.add_option("--save-kv", files.save,
                 "keep the sequence in a file afterwards: its tokens and their cache")
      ->type_name("FILE");
  app.add_option("--load-kv", files.load,
                 "go on from such a file, with its recipe, without computing it again")
      ->type_name("FILE");
}

SavedSequence::SavedSequence(const KvFiles& files, const ModelOptions& model, SessionOptions& options)
    : files_(files) {
  // Made and removed again: better now than after an hour of work.
  if (saves()) AtomicFile{files_.save};
  if (!loads()) return;
  const auto start = std::chrono::steady_clock::now();
  saved_ = SavedSession::open(files_.load);
  load_seconds = seconds_since(start);
  const Recipe& recipe = saved_->cache().recipe;
  const PagePlace place = options.recipe.place;  // is not the file's matter
  if (model.recipe_given && !(options.recipe.without_place() == recipe)) {
    saved_->fail("the saved cache has the recipe " + recipe.text() + ", not " +
                 options.recipe.without_place().text() + "; without --kv it is taken as it is");
  }
  options.recipe = recipe;
  options.recipe.place = place;
}

void SavedSequence::check_model(const Engine& engine) const {
  if (saved_) saved_->check_model(engine);
}

void SavedSequence::load(AnySession& session) {
  const auto start = std::chrono::steady_clock::now();
  session.restore(*saved_);
  n_loaded = session.tokens().size();
  saved_.reset();
  load_seconds += seconds_since(start);
}

void SavedSequence::save(const AnySession& session) {
  const auto start = std::chrono::steady_clock::now();
  file_bytes = session.save(files_.save);
  save_seconds = seconds_since(start);
}

size_t SavedSequence::n_room_tokens() const {
  if (!saved_) return 0;
  const SavedCache& cache = saved_->cache();
  const auto most = std::max_element(cache.n_sealed.begin(), cache.n_sealed.end());
  const size_t n_coded = most == cache.n_sealed.end() ? 0 : *most * kTokensPerPage;
  return std::max(n_saved_tokens(), n_coded > 0 ? n_coded + cache.recipe.tail_tokens : 0);
}

size_t SavedSequence::n_joined_tokens(const Prompt& prompt) const {
  if (prompt.whole.empty()) return n_saved_tokens();
  const bool is_behind =
      files_.append || !quire::join(saved_->tokens(), prompt.whole, prompt.n_fixed).same_start;
  return is_behind ? n_saved_tokens() + prompt.behind().size()
                   : std::max(n_saved_tokens(), prompt.whole.size());
}

std::vector<int32_t> SavedSequence::join(AnySession& session, const Prompt& prompt) const {
  const std::string loaded = "loaded " + tokens_text(n_loaded);
  if (prompt.whole.empty()) {
    write_note(loaded + "; there is no prompt, so generation goes on behind them");
    return {};
  }
  const Joint joint = quire::join(session.tokens(), prompt.whole, prompt.n_fixed);
  if (files_.append || !joint.same_start) {
    std::vector<int32_t> more = prompt.behind();
    write_note(loaded + "; the prompt " + (files_.append ? "" : "begins differently and ") +
               "comes behind them: " + tokens_text(more.size()));
    return more;
  }
  reuse(session, joint.n_common, prompt.whole.size());
  return {prompt.whole.begin() + static_cast<ptrdiff_t>(joint.n_common), prompt.whole.end()};
}

// A cut into coded pages leaves no cache at all: Session::crop().
void SavedSequence::reuse(AnySession& session, size_t n_common, size_t n_prompt) const {
  session.crop(n_common);
  std::string note = "loaded " + tokens_text(n_loaded) + "; the prompt begins like them: ";
  if (session.n_cached() == 0 && n_common > 0) {
    note += "but behind " + tokens_text(n_common) +
            " it differs, where rows are coded, have moved or have left, so everything is computed anew";
  } else {
    note += tokens_text(n_common) + " used again, " + std::to_string(n_prompt - n_common) + " new";
    if (n_common < n_loaded) note += ", " + std::to_string(n_loaded - n_common) + " dropped";
  }
  write_note(note);
}

}  // namespace quire::cli
