// Stands in for the library where Quire is built without the CUDA toolkit: there is never a device.
#include "base/device_error.h"
#include "gpu/device_batch.h"
#include "gpu/device_model.h"

namespace quire::gpu {

namespace {

[[noreturn]] void refuse() {
  throw DeviceError(
      "this Quire was built without CUDA, so it has no --device cuda (build it with the preset cuda)");
}

}  // namespace

struct DeviceModel::Parts {};
struct DeviceBatch::Parts {};

DeviceModel DeviceModel::load(const GgufFile&, const RopeOverrides&, int) { refuse(); }
DeviceModel DeviceModel::random(std::string_view, uint64_t, int) { refuse(); }
DeviceModel::DeviceModel(DeviceModel&&) noexcept = default;
DeviceModel& DeviceModel::operator=(DeviceModel&&) noexcept = default;
DeviceModel::~DeviceModel() = default;
const ModelConfig& DeviceModel::config() const { refuse(); }
const std::string& DeviceModel::label() const { refuse(); }
uint64_t DeviceModel::weight_bytes() const { refuse(); }
uint64_t DeviceModel::step_bytes() const { refuse(); }
const std::string& DeviceModel::device_name() const { refuse(); }

DeviceBatch::DeviceBatch(const DeviceModel&, const BatchOptions&, const ModelFacts&) { refuse(); }
DeviceBatch::~DeviceBatch() = default;
int DeviceBatch::n_sequences() const { refuse(); }
size_t DeviceBatch::n_tokens(int) const { refuse(); }
void DeviceBatch::check_ids(std::span<const int32_t>) const { refuse(); }
bool DeviceBatch::prefill(int, std::span<const int32_t>, const PromptOptions&) { refuse(); }
void DeviceBatch::resume(int, std::span<const float>) { refuse(); }
void DeviceBatch::set_draws(int, uint64_t) { refuse(); }
void DeviceBatch::drop_tokens() { refuse(); }
bool DeviceBatch::step_codes() const { refuse(); }
bool DeviceBatch::gives_rows() const { refuse(); }
void DeviceBatch::save(int, Cache&) { refuse(); }
void DeviceBatch::load(int, const Cache&, std::span<const int32_t>) { refuse(); }
void DeviceBatch::set_token(int, int32_t) { refuse(); }
void DeviceBatch::step() { refuse(); }
std::vector<int32_t> DeviceBatch::take_tokens() { refuse(); }
void DeviceBatch::wait() { refuse(); }
std::vector<float> DeviceBatch::logits(int) { refuse(); }
void DeviceBatch::crop(int, size_t) { refuse(); }
void DeviceBatch::fork(int, int) { refuse(); }
uint64_t DeviceBatch::cache_bytes() const { refuse(); }
uint64_t DeviceBatch::reserved_bytes() const { refuse(); }
uint64_t DeviceBatch::memory_bytes() const { refuse(); }
uint64_t DeviceBatch::cache_memory_bytes() const { refuse(); }
DeviceBatch::Outside DeviceBatch::take_outside() { refuse(); }
double DeviceBatch::time_sweep() { refuse(); }
void DeviceBatch::fill_random(int, size_t, uint64_t) { refuse(); }
std::vector<float> DeviceBatch::time_steps(int, bool, uint64_t) { refuse(); }

}  // namespace quire::gpu
