// All formats' bytes of one page, and what they decode to, compiled for the instruction set of the including
// file: no std, no symbol but code_all in the including file's namespace. Parts of the frame come first, as
// in a kernel.
namespace {

template <class F>
void code_both(const float* rows, int head_dim, const Codebook& book, uint8_t* bytes, float* back) {
  uint8_t* values = bytes + F::key_page_bytes(head_dim);
  F::encode_keys(rows, head_dim, book, bytes);
  F::encode_values(rows, head_dim, book, values);
  for (int t = 0; t < kPageRows; ++t) {
    F::decode_key_row(bytes, head_dim, t, book, back + t * head_dim);
    F::decode_value_row(values, head_dim, t, book, back + (kPageRows + t) * head_dim);
  }
}

}  // namespace

// Returns the bytes written; books has one entry a format, back room for keys and values of each.
int code_all(const Frame& frame, const float* rows, const Codebook* books, float* framed, uint8_t* bytes,
             float* back) {
  const int head_dim = frame.head_dim;
  for (int t = 0; t < kPageRows; ++t) to_frame(frame, rows + t * head_dim, framed + t * head_dim);
  int written = 0;
  for (int i = 0; i < kCodeCount; ++i) {
    const Code code = static_cast<Code>(i);
    float* to = back + i * 2 * kPageRows * head_dim;
    visit_code(code, [&](auto format) {
      code_both<decltype(format)>(framed, head_dim, books[i], bytes + written, to);
    });
    written += key_page_bytes(code, head_dim) + value_page_bytes(code, head_dim);
  }
  return written;
}
