// A whole sequence in one file: its tokens and its cache, of one model. To the sections of a cache
// (cache/cache_file.h) come
//
//   model        the fingerprint of the model file, 16 hex digits
//   tokens       i32 each, all tokens of the sequence
//   logits       f32 [vocabulary] after the last token whose rows are there, if they are known: generation
//   goes on
//                without computing anything. Who does not know this section may leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/section_file.h"
#include "cache/cache_file.h"
#include "engine/session.h"
#include "weights/mapped_file.h"

namespace quire {

// A file that has been checked against itself, not yet against a model. Memory that it takes is that of the
// tokens; the pages stay in the file until a session takes them over.
class SavedSession {
 public:
  // Throws Error of one sentence for what cannot be opened or is no whole, undamaged saved cache.
  static SavedSession open(const std::string& path);
  // The same for bytes that outlive it; `name` stands for the path.
  static SavedSession from_memory(std::span<const std::byte> bytes, const std::string& name);

  const std::string& name() const { return sections_.name(); }
  const std::string& fingerprint() const { return fingerprint_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // Empty where they are not known.
  const std::vector<float>& logits() const { return logits_; }
  const SavedCache& cache() const { return cache_; }
  uint64_t file_bytes() const { return file_.bytes().size(); }

  // Refuses the file of another model: before a session is made, which may take time.
  void check_model(const Engine& engine) const;
  // The same, and refuses what the session's model, recipe, context or budget do not take, with an Error that
  // gives the numbers.
  void check(const Session& session) const;
  // The pages, into a cache without tokens that check() has seen.
  void restore(Cache& cache) const;

  [[noreturn]] void fail(const std::string& what) const { sections_.fail(what); }

 private:
  SavedSession(MappedFile file, const std::string& name);
  void read_tokens();
  void check_values(size_t vocabulary) const;

  MappedFile file_;
  SectionFile sections_;
  SavedCache cache_;
  std::string fingerprint_;
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
};

// What a file is made of: a sequence, of which the cache has the rows of all tokens or of the first ones, and
// the logits behind these, or none.
struct SequenceParts {
  const Engine& engine;
  const Cache& cache;
  std::span<const int32_t> tokens;
  std::span<const float> logits;
};

// Everything that the session holds, as a file. The pages are written from where they lie.
void write_session(const Session& session, const ByteSink& sink);
// The same to `path`, where either the whole file appears or nothing changes; throws Error. Returns its
// bytes.
uint64_t save_session(const Session& session, const std::string& path);
uint64_t save_sequence(const SequenceParts& parts, const std::string& path);

}  // namespace quire
