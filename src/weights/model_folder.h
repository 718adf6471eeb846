// A folder in Hugging Face form as a GgufFile; see open_model.h. Internal to the room.
#pragma once

#include <string>

#include "weights/gguf.h"

namespace quire {

GgufFile open_model_folder(const std::string& path);

}  // namespace quire
