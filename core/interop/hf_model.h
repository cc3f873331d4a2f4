// Folders as Hugging Face's transformers saves models: config.json and safetensors files. An HfModel says which model
// of ours a folder holds, with which options, and how our tensors follow from its. Plain values and functions; each
// architecture has a source file, hf/NAME.cpp, with both directions and its table (core/interop/hf_family.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/field.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "core/models/model.h"

namespace lockstep {

struct HfFamily;  // core/interop/hf_family.h

// One of our tensors, made of a folder's.
struct HfTensor {
  enum class Layout {
    kSame,          // extents of 1 at the front do not count
    kTransposed,    // ours [n, m], theirs [m, n]
    kChannelsLast,  // ours [out, h, w, in], theirs [out, in, h, w]
  };
  std::string name;               // ours: "parameters/blocks.0.qkv.weight"
  std::vector<std::string> from;  // theirs, equal parts along our first dimension
  Layout layout = Layout::kSame;
  bool head = false;          // of a head: left out where our model has another one
  bool one_in_front = false;  // theirs has an extent of 1 before those of ours

  Shape part_of(const Shape& ours) const;      // the shape of each part, in our layout
  Shape shape_there(const Shape& ours) const;  // and in the folder's
};

struct HfModel {
  std::string folder;                                      // or file, that it was read from
  std::string family;                                      // "gpt2": model_type of config.json
  const HfFamily* table = nullptr;                         // of its architecture; null where no config.json names one
  std::string model;                                       // "gpt": our model.name
  std::vector<std::pair<std::string, JsonValue>> options;  // of section model, without the selector
  TaskSpec task;                                           // the longest input, or an image, and its classes
  int64_t longest = 0;  // the longest text, where those longer than task.input have other frequencies (longrope)
  std::vector<HfTensor> tensors;
  std::string prefix;  // of the names of its tensors, which files of the bare model lack: "transformer."
  std::vector<std::pair<std::string, std::string>>
      copies;                        // a tensor that may be there, and the one that it must equal
  std::vector<std::string> ignored;  // patterns (fnmatch) of tensors without a part in what ours computes
};

// What is written beside the tensors of an HfModel.
struct HfExport {
  HfModel model;
  JsonObject config;                 // config.json
  std::vector<WeightToWrite> zeros;  // tensors that transformers wants and ours does not have
  std::vector<std::pair<std::string, std::string>> files = {};  // others, by name and text
  bool other_tokenizer = false;                                 // than that of the folder that the run began with
  std::string chosen_by = {};  // what made it this architecture of several, for messages: "model.norm: layer"
};

bool is_hf_folder(const std::string& folder);  // has config.json, and no checkpoint
bool is_pretrained(const std::string& path);   // is such a folder, or a file

// Reads config.json, in the spellings of transformers 4 and 5. Throws ExitCode::kBadData, one line that names file and
// key, for a broken file, an unknown architecture and what changes results and is not supported. A file of llm.c is a
// "gpt2"; of a file of tensors with our own names nothing but `folder` is set.
HfModel read_hf_model(const std::string& path);
HfModel hf_model_of_config(std::string_view json, const std::string& path);  // of its text

// Our kind of model with the folder's options, which builds it: for model.task, or for other data. Throws
// ExitCode::kBadData for a file with our own names, which says nothing of a model.
std::unique_ptr<ModelKind> kind_of(const HfModel& model);

// For our model with these options, built for this task. Throws ExitCode::kBadData naming the option where transformers
// has no such model: where an import of config.json would find another value.
HfExport hf_export_of(const std::string& model, const std::vector<Field>& options, const TaskSpec& task);

}  // namespace lockstep
