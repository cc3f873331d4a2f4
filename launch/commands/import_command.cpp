#include "launch/commands/import_command.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>

#include "core/base/plain_file.h"
#include "core/state/checkpoint.h"
#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "launch/arguments/table_options.h"
#include "launch/arguments/vocabulary_options.h"
#include "launch/commands/data_files.h"
#include "launch/config/run_data.h"
#include "launch/terminal/output.h"
#include "launch/terminal/shown_progress.h"
#include "launch/text/find_vocabulary.h"

namespace lockstep {
namespace {

using Inputs = std::vector<std::string>;

// The vocabulary that --vocabulary or --tokenizer names; null for none.
std::shared_ptr<const Vocabulary> named_vocabulary(const Arguments& a, const std::string& format,
                                                   const ImportOptions& options, LengthRules rules) {
  const std::string &characters = a.text("vocabulary"), &tokenizer = a.text("tokenizer");
  require(characters.empty() || tokenizer.empty(), ExitCode::kUsage, "data import ", format,
          ": --vocabulary and --tokenizer exclude each other");
  const std::string& from = characters.empty() ? tokenizer : characters;
  require(!options.like || from.empty(), ExitCode::kUsage, "data import ", format,
          ": --like gives the vocabulary; leave out --vocabulary and --tokenizer");
  require(!options.like || options.like->schema.kind == DataKind::kTokens, ExitCode::kBadData, "--like ",
          a.text("like"), ": holds no text");
  if (from.empty()) return options.like ? options.like->vocabulary : nullptr;
  return find_vocabulary(from, characters.empty() ? PlainFile::kJson : PlainFile::kText, rules);
}

void import_text_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  const std::string& level = a.text("level");
  require(level.empty() || level == "char" || level == "byte", ExitCode::kUsage, "--level ", level,
          ": must be char or byte");
  options.vocabulary = named_vocabulary(a, "text", options, length_rules(a));
  TextLevel wanted = level == "byte" ? TextLevel::kByte : TextLevel::kChar;
  if (options.vocabulary) {
    const TextLevel there = options.vocabulary->level();
    require(level.empty() || wanted == there, ExitCode::kUsage, "--level ", level, ": the vocabulary of ",
            a.text("vocabulary") + a.text("tokenizer") + a.text("like"), " is of level ", to_text(there));
    wanted = there;
  }
  options.separator = a.text("separator");
  options.special_tokens = a.has("special-tokens");
  options.invalid = invalid_bytes(a);
  const bool pairs = !options.separator.empty() || options.special_tokens || options.invalid == InvalidBytes::kReplace;
  require(
      !pairs || wanted == TextLevel::kBpe || wanted == TextLevel::kWords, ExitCode::kUsage,
      "data import text: --separator, --special-tokens and --invalid are for a tokenizer of byte pairs or WordPiece");
  import_text(inputs, output, wanted, options);
}

void import_idx_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  require(inputs.size() == 2, ExitCode::kUsage, "data import idx: give the image file, the label file and the output");
  import_idx(inputs[0], inputs[1], output, a.integer("classes", 0), options);
}

void import_json_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  JsonFields fields{a.text("field"), a.text("prompt"), a.text("completion"), a.text("messages")};
  const std::string &chat = a.text("template"), &skip = a.text("skip-bad");
  fields.chosen = a.text("chosen"), fields.rejected = a.text("rejected");
  const bool pairs = !fields.chosen.empty() || !fields.rejected.empty();
  require(chat.empty() || !fields.messages.empty() || !fields.prompt.empty() || pairs, ExitCode::kUsage,
          "data import json: --template says how --messages, or --prompt with --completion, --chosen and --rejected, "
          "become a text");
  fields.chat_template = chat;
  fields.template_values = a.text("template-values");
  require(fields.template_values.empty() || !fields.messages.empty() || !chat.empty(), ExitCode::kUsage,
          "data import json: --template-values is for --messages, or goes with --template");
  fields.label = a.text("label");
  fields.weight = a.text("weight");
  fields.many_labels = a.has("many-labels");
  if (fields.prompt.empty() && fields.completion.empty() && fields.messages.empty() && fields.text.empty() && !pairs)
    fields.text = "text";
  options.vocabulary = named_vocabulary(a, "json", options, length_rules(a));
  options.separator = a.text("separator");
  import_json(inputs, output, fields, skip.empty() ? 0 : a.integer("skip-bad", 0), options);
}

TokenFileOptions token_file_options(const Arguments& a, const std::string& format, ImportOptions& options) {
  options.vocabulary = named_vocabulary(a, format, options, LengthRules::kIgnore);
  TokenFileOptions out;
  if (!a.text("vocabulary-size").empty()) out.vocabulary_size = a.integer("vocabulary-size", 1, INT32_MAX);
  require(out.vocabulary_size == 0 || !options.vocabulary, ExitCode::kUsage, "data import ", format,
          ": --vocabulary-size is for ids without a tokenizer");
  if (!a.text("document-token").empty()) out.document_token = a.integer("document-token", 0, INT32_MAX);
  return out;
}

void import_llmc_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  const TokenFileOptions tokens = token_file_options(a, "llmc", options);
  import_llmc(inputs, output, tokens, options);
}

void import_megatron_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  const TokenFileOptions tokens = token_file_options(a, "megatron", options);
  require(tokens.document_token < 0, ExitCode::kUsage,
          "data import megatron: --document-token is for llmc; the index says what a document is");
  import_megatron(inputs, output, tokens, options);
}

void import_image_folder(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  require(inputs.size() == 1, ExitCode::kUsage, "data import images: give the folder and the output");
  ImageOptions how{.labels = a.text("labels"),
                   .keep_encoded = a.has("keep-encoded"),
                   .masks = a.text("masks"),
                   .boxes = a.text("boxes")};
  how.palette = a.text("palette");
  if (!a.text("skip-bad").empty()) how.skip_bad = a.integer("skip-bad", 0);
  require(how.palette.empty() || !how.masks.empty(), ExitCode::kUsage, "data import images: --palette needs --masks");
  require(
      how.palette.empty() || (a.text("ignore").empty() && a.integer("classes", 0) == 0), ExitCode::kUsage,
      "data import images: --palette says which classes there are and which colour is none: leave out --classes and ",
      "--ignore");
  require(!how.labels.empty() + !how.masks.empty() + !how.boxes.empty() <= 1, ExitCode::kUsage,
          "data import images: --labels, --masks and --boxes exclude each other");
  const std::string& ignored = a.text("ignore");
  how.classes = a.integer("classes", 0, how.masks.empty() ? kMostClasses : kMostMaskClasses);
  require(!how.masks.empty() || ignored.empty(), ExitCode::kUsage, "data import images: --ignore is for --masks");
  const bool counts = !how.masks.empty() || (!how.boxes.empty() && !how.boxes.ends_with(".json"));
  require(counts || how.classes == 0, ExitCode::kUsage,
          "data import images: --classes is for --masks and --boxes of a folder");
  if (!ignored.empty()) how.ignored = a.integer("ignore", 0, 255);
  how.weight = a.text("weight");
  require(how.weight.empty() || !how.labels.empty(), ExitCode::kUsage,
          "data import images: --weight is a column of the table of --labels: name that, too");
  how.encoding = encoding_of(a);
  import_images(inputs[0], output, how, options);
}

void import_npy_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  const std::string &samples = a.text("samples"), &labels = a.text("labels");
  const std::string& axes = a.text("layout");
  require(axes.empty() || axes == "nchw" || axes == "nhwc", ExitCode::kUsage, "--layout ", axes,
          ": must be nchw or nhwc");
  const ImageLayout layout = axes.empty()     ? ImageLayout::kByShape
                             : axes == "nchw" ? ImageLayout::kChannelsFirst
                                              : ImageLayout::kChannelsLast;
  const std::string& weights = a.text("weight");
  if (inputs.size() == 1) return import_npz(inputs[0], samples, labels, output, options, layout, weights);
  require(inputs.size() == 2, ExitCode::kUsage,
          "data import npy: give the samples, the labels and the output, or one .npz and the output");
  require(samples.empty() && labels.empty(), ExitCode::kUsage,
          "data import npy: --samples and --labels are for a .npz");
  import_npy(inputs[0], inputs[1], output, options, layout, weights);
}

// What a table's `--text` makes records of; `format`: csv or parquet.
CsvTextColumns text_columns(const Arguments& a, const std::string& format, ImportOptions& options) {
  for (const char* other : {"categories", "leave-out", "target", "missing", "thousands", "strip", "date", "date-order"})
    require(a.text(other).empty(), ExitCode::kUsage, "data import ", format, ": --", other,
            " is for tables, without --text");
  for (const char* other : {"fill-missing", "decimal-comma"})
    require(!a.has(other), ExitCode::kUsage, "data import ", format, ": --", other, " is for tables, without --text");
  require(a.text("unknown").empty(), ExitCode::kUsage, "data import ", format,
          ": --unknown is for tables, without --text");
  options.vocabulary = named_vocabulary(a, format, options, length_rules(a));
  options.separator = a.text("separator");
  const std::string &label = a.text("label"), &weight = a.text("weight");
  require(weight.empty() || !label.empty(), ExitCode::kUsage, "data import ", format, ": --weight needs --label");
  return {a.text("text"), label, a.has("many-labels"), encoding_of(a), delimiter_of(a), weight};
}

void import_shard_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  if (!a.text("text").empty()) {
    require(!a.has("keep-encoded") && a.text("skip-bad").empty(), ExitCode::kUsage,
            "data import webdataset: --keep-encoded and --skip-bad are for images, without --text");
    const CsvTextColumns columns = text_columns(a, "webdataset", options);
    std::string extension = columns.text;  // members are found by theirs in lower case, without the point
    if (extension.starts_with('.')) extension.erase(0, 1);
    for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return import_shard_texts(inputs, output, {extension, columns.label, columns.many_labels}, options);
  }
  refuse_text_options(a, "webdataset");
  require(!a.has("many-labels"), ExitCode::kUsage, "data import webdataset: --many-labels needs --text");
  ShardOptions how{.label = a.text("label"), .keep_encoded = a.has("keep-encoded")};
  if (!a.text("skip-bad").empty()) how.skip_bad = a.integer("skip-bad", 0);
  import_shards(inputs, output, how, options);
}

void import_csv_file(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  require(inputs.size() == 1, ExitCode::kUsage, "data import csv: give the table and the output");
  if (a.text("text").empty()) return import_csv(inputs[0], output, table_columns(a, "csv"), options);
  const CsvTextColumns columns = text_columns(a, "csv", options);
  import_csv_text(inputs[0], output, columns, options);
}

void import_columnar_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  if (a.text("text").empty()) return import_columnar(inputs, output, table_columns(a, "parquet"), options);
  const CsvTextColumns columns = text_columns(a, "parquet", options);
  import_columnar_texts(inputs, output, columns, options);
}

struct ImportFormat {
  std::string name, help;
  void (*import)(const Arguments&, const Inputs&, const std::string& output, ImportOptions);
  std::vector<std::string> options;  // without those of kCommonOptions
};
constexpr std::string_view kCommonOptions[] = {"like", "force", "json"};
const ImportFormat kFormats[] = {
    {"text",
     "concatenates the INPUT files in order",
     import_text_files,
     {"level", "vocabulary", "tokenizer", "separator", "whole-texts", "special-tokens", "invalid", "threads"}},
    {"json",
     "a record is made of each object of the INPUT files, one a line (JSON lines) or in one list; its fields are named "
     "below",
     import_json_files,
     {"field", "prompt", "completion", "messages", "chosen", "rejected", "template", "template-values", "label",
      "weight", "many-labels", "skip-bad", "vocabulary", "tokenizer", "separator", "whole-texts", "threads"}},
    {"llmc",
     "INPUT files hold token ids as llm.c's do (.bin)",
     import_llmc_files,
     {"vocabulary", "tokenizer", "vocabulary-size", "document-token"}},
    {"megatron",
     "an INPUT is the name, without .bin or .idx, of an indexed dataset of Megatron-LM",
     import_megatron_files,
     {"vocabulary", "tokenizer", "vocabulary-size", "document-token"}},
    {"idx", "INPUT is an image file and its label file (IDX, gzip or plain)", import_idx_files, {"classes"}},
    {"images",
     "INPUT is a folder of PNG and JPEG files; the subfolder that one lies in is its label",
     import_image_folder,
     {"labels", "weight", "encoding", "masks", "palette", "ignore", "boxes", "keep-encoded", "skip-bad", "classes",
      "threads"}},
    {"webdataset",
     "an INPUT is a tar archive (a shard) of images, .png, .jpg or .jpeg, each beside its label, .cls: members with "
     "one name before the first point are a sample; with --text, of texts",
     import_shard_files,
     {"label", "text", "many-labels", "keep-encoded", "skip-bad", "vocabulary", "tokenizer", "separator", "whole-texts",
      "threads"}},
    {"csv",
     "INPUT is a table, .csv or .tsv, whose first row names the columns",
     import_csv_file,
     {"label",     "weight",    "many-labels", "target",       "text",      "categories",
      "leave-out", "missing",   "encoding",    "fill-missing", "delimiter", "decimal-comma",
      "thousands", "strip",     "date",        "date-order",   "unknown",   "vocabulary",
      "tokenizer", "separator", "whole-texts", "threads"}},
    {"parquet",
     "the INPUT files, Parquet or Arrow (Feather), are one table, as csv has it; in builds with LOCKSTEP_PARQUET",
     import_columnar_files,
     {"label",   "weight",       "many-labels",   "target",    "text",        "categories", "leave-out",
      "missing", "fill-missing", "decimal-comma", "thousands", "strip",       "date",       "date-order",
      "unknown", "vocabulary",   "tokenizer",     "separator", "whole-texts", "threads"}},
    {"npy",
     "INPUT is an array of images or features and one of labels or numbers to predict (.npy), or a .npz that holds "
     "both",
     import_npy_files,
     {"samples", "labels", "weight", "layout"}}};

// Each begins with the formats that read it, as kFormats lists them.
std::vector<Option> import_options() {
  std::vector<Option> out{
      {"level", "text: a token is a character (UTF-8) or a byte; default: the level of --vocabulary, or char", "LEVEL",
       ""},
      {"vocabulary", "the vocabulary of FROM, in place of one made from the text", "FROM", ""},
      {"tokenizer", "the tokenizer of FROM: byte pairs, WordPiece or SentencePiece", "FROM", ""},
      {"separator", "a token such as <|endoftext|> to put after each INPUT (text) or record (all others)", "TOKEN", ""},
      {"special-tokens", "text: special tokens that the text spells out are those tokens; else they are text"},
      invalid_option(),
      whole_texts_option(),
      {"field", "json: the field that holds the text; default: text", "NAME", ""},
      {"prompt", "json: the field of a prompt, a text or a list of messages, on which there is no loss", "NAME", ""},
      {"completion", "json: the field of what follows the prompt, a text or a list of messages, on which the loss is",
       "NAME", ""},
      {"messages", "json: the field of a conversation, a list of {role, content}; the loss is on the assistant's",
       "NAME", ""},
      {"chosen", "json: the field of an answer that was preferred, a text or a list of messages", "NAME", ""},
      {"rejected",
       "json: the field of the answer that was not; a run trains on both (data.packing: pairs), or on --chosen", "NAME",
       ""},
      {"template",
       "json: how messages become a text: chatml, llama3, plain or a file NAME.jinja; default: the tokenizer's own "
       "template; without one llama3 where the tokenizer has that template's tokens and not chatml's, else chatml; "
       "with texts as --prompt, --completion, --chosen and --rejected none",
       "NAME", ""},
      template_values_option("json: "),
      {"skip-bad",
       "json: leave out up to N lines that are no such record, and name them; images, webdataset: images that cannot "
       "be "
       "decoded, webdataset: or lack a label; default: 0",
       "N", ""},
      {"vocabulary-size", "llmc, megatron: how many ids there are, without --tokenizer; default: the largest plus one",
       "N", ""},
      {"document-token", "llmc: the id that begins each document, which is then a record", "ID", ""},
      {"classes", "idx, images with masks or YOLO's boxes: number of labels; 0: the largest one plus one", "N", "0"},
      {"labels",
       "images: a CSV or TSV file with the columns file and label, in place of subfolders; npy: the array of labels "
       "in a .npz; default: y or y_train",
       "FILE", ""},
      {"samples", "npy: the array of images or features in a .npz; default: x or x_train", "NAME", ""},
      {"layout",
       "npy: the axes of images of 4 dimensions: nhwc, channels last, or nchw, channels first; default: what the "
       "shape tells",
       "AXES", ""},
      {"masks",
       "images: a folder of PNG files with the images' names; a pixel's value, or index of its palette, is its label; "
       "where all are 0 or 255, these are 0 and 1",
       "FOLDER", ""},
      {"palette",
       "images: the colours of masks' classes, one a line, from class 0 on: red, green, blue and perhaps a name, which "
       "is ignore for no class",
       "FILE", ""},
      {"boxes",
       "images: COCO's JSON file, or a folder of YOLO's text files with the images' names; boxes are stored, no "
       "model reads them yet",
       "FROM", ""},
      {"ignore", "images: the value of a mask's pixels that have no part in loss and metric", "N", ""},
      {"keep-encoded", "images, webdataset: store files as they are, though all have one size"},
      {"label",
       "csv, parquet, json: the column or field that holds the labels; json: of the texts of --field; webdataset: the "
       "field of each sample's .json that holds its label, in place of .cls",
       "NAME", ""},
      {"weight",
       "json, images, csv, parquet: the field or column (of images' --labels) that holds each sample's weight, a "
       "number of at least 0, by which its loss counts; npy: the array of weights in a .npz, or a .npy file",
       "NAME", ""},
      {"many-labels",
       "csv, parquet, json, webdataset: more than 1000 different labels are meant, each as a class; else an error"},
      {"target", "csv, parquet: the column that holds the numbers to predict, in place of labels", "COLUMN", ""},
      {"text",
       "csv, parquet: the column that holds texts, of which records are made in the place of a table; webdataset: the "
       "members that do, such as txt",
       "NAME", ""},
      {"categories", "csv, parquet: columns that are categories though they hold numbers", "COLUMN,...", ""},
      {"leave-out", "csv, parquet: columns that are not imported", "COLUMN,...", ""},
      {"missing",
       "csv, parquet: cells that stand for no value, beside empty ones; default: NA, N/A, n/a, #N/A, <NA>, NaN, NULL, "
       "None, ? and the like",
       "TEXT,...", ""},
      {"encoding",
       "csv, images: how bytes of the table, of --labels or of subfolders' names are characters: utf-8 (default), "
       "latin-1 or windows-1252",
       "NAME", ""},
      {"delimiter", "csv: the character between cells, or tab; default: what the name and the first row tell", "CHAR",
       ""},
      {"unknown",
       "csv, parquet: a category that the data of --like has not is an error, or a missing value: error or missing; "
       "default: "
       "error",
       "HOW", ""},
      {"fill-missing",
       "csv, parquet: a missing number becomes the mean, a missing category one of its own; else an error"},
      {"like",
       "normalisation, numbers of labels, columns, categories and vocabulary of an earlier import or of a run, so "
       "that the output means what that data means; what it does not have is refused",
       "FILE.h5|RUN", ""},
      {"threads", "threads that decode and encode (text, json, csv, parquet, images, webdataset); 0: one for each core",
       "N", "0"},
      {"force", "replace an existing OUTPUT.h5"},
      {"json", "print a description of the output as one JSON object"}};
  const auto behind = std::find_if(out.begin(), out.end(), [](const Option& o) { return o.name == "unknown"; });
  const std::vector<Option> of_cells = cell_options();
  out.insert(behind, of_cells.begin(), of_cells.end());
  return out;
}

bool reads(const ImportFormat& format, std::string_view option) {
  return std::find(format.options.begin(), format.options.end(), option) != format.options.end();
}

// The names of the formats that read an option: "text, json".
std::string readers_of(std::string_view option) {
  std::string out;
  for (const ImportFormat& f : kFormats)
    if (reads(f, option)) out += str(out.empty() ? "" : ", ", f.name);
  return out;
}

// Refuses options that other formats alone read.
void refuse_options(const Arguments& a, const ImportFormat& format) {
  for (const Option& o : import_options()) {
    const std::string name = o.long_name(), readers = readers_of(name);
    const bool given = o.value.empty() ? a.has(name) : a.text(name) != o.standard;
    require(!given || readers.empty() || reads(format, name), ExitCode::kUsage, "data import ", format.name, ": --",
            name, " is for ", readers, "; `lockstep data import ", format.name, " --help` shows what it reads");
  }
}

// What --like names: a dataset file, a run or a checkpoint.
std::shared_ptr<const LikeData> like_data(const App& app, const std::string& from) {
  if (from.empty()) return nullptr;
  if (!std::filesystem::is_directory(from)) return like_file(from);
  std::string why;
  const auto data = data_of_run(app, open_newest(from), why);
  require(data != nullptr, ExitCode::kBadData, "--like ", from, ": does not say what its data means",
          why.empty() ? "" : str(" (", why, ")"), "; name the dataset file that it was trained on");
  auto out = std::make_shared<LikeData>(*data);
  out->name = from;
  return out;
}

constexpr const char* kImportHelp =
    "OUTPUT.h5 appears when it is complete; data/FORMAT.md describes the format. Until then it is made in the\n"
    "folder OUTPUT.h5.partial. An import of files of text, json, images or webdataset, or of csv or parquet with\n"
    "--text, that was cut short goes on from there when the same command is given again.";
constexpr const char* kVocabularyHelp =  // of formats that read --vocabulary
    "\n--vocabulary: use the vocabulary of FROM, so that characters get the token ids that a model trained with\n"
    "it needs. FROM is a run directory, a checkpoint, a dataset (.h5), or a UTF-8 file whose characters are\n"
    "the vocabulary. The text need not use all of them; a character that is not among them is an error.\n"
    "An INPUT may be compressed by gzip or Zstandard, and - is standard input (text, json, webdataset).\n"
    "--tokenizer: FROM is a tokenizer.json, a SentencePiece model, BERT's vocab.txt, a folder that holds one,\n"
    "encoder.json and vocab.bpe, or vocab.json and merges.txt, or a run, a checkpoint or a dataset. Each INPUT of\n"
    "text, or record of json, webdataset, csv or parquet, is encoded by itself. Without --tokenizer and\n"
    "--vocabulary text is characters, and records are bytes.";

// The form as one format has it.
Command form_of(const ImportFormat& format) {
  Command out{
      "data import",
      str("data import ", format.name, " INPUT... OUTPUT.h5 [options]"),
      str(format.name, ": ", format.help, ".\n\n", kImportHelp, reads(format, "vocabulary") ? kVocabularyHelp : ""),
      {},
      3};
  const std::string prefix = format.name + ": ";
  for (Option& o : import_options()) {
    const std::string name = o.long_name();
    const bool common =
        std::find(std::begin(kCommonOptions), std::end(kCommonOptions), name) != std::end(kCommonOptions);
    if (!common && !reads(format, name)) continue;
    if (readers_of(name) == format.name && o.help.starts_with(prefix)) o.help.erase(0, prefix.size());
    out.options.push_back(std::move(o));
  }
  return out;
}

}  // namespace

int import_data(const App& app, const Arguments& a) {
  const std::string name = a.positional.front(), output = a.positional.back();
  const Inputs inputs(a.positional.begin() + 1, a.positional.end() - 1);
  ImportOptions options;
  options.force = a.has("force");
  options.like = like_data(app, a.text("like"));
  ShownProgress shown("import", name == "images" || name == "idx" || (name == "webdataset" && a.text("text").empty())
                                    ? "images"
                                : name == "npy" ? "samples"
                                                : "bytes");
  options.progress = progress_until_stopped(shown, output, "the import");
  ShownProgress written("write");
  options.writing = [&, stoppable = progress_until_stopped(written, output, "the import")](int64_t done,
                                                                                           int64_t total) {
    shown.finish();
    stoppable(done, total);
  };
  options.threads = static_cast<int>(a.integer("threads", 0, kMostRanks));
  const auto is_named = [&](const ImportFormat& f) { return f.name == name; };
  const ImportFormat& format = *std::find_if(std::begin(kFormats), std::end(kFormats), is_named);
  refuse_options(a, format);
  format.import(a, inputs, output, options);
  shown.finish();
  written.finish();
  ShownProgress checked("check");
  const DatasetReport report = inspect_dataset(output, std::ref(checked));
  checked.finish();
  print_out(a.has("json") ? to_json(report) : to_text(report));
  return 0;
}

Command import_form() {
  std::string formats, help;
  std::vector<std::string> names;
  std::vector<Command> of_names;
  for (const ImportFormat& f : kFormats) {
    of_names.push_back(form_of(f));
    formats += str(names.empty() ? "" : "|", f.name);
    help += str(f.name, ": ", f.help, ".\n");
    names.push_back(f.name);
  }
  return {
      "data import",
      str("data import ", formats,
          " INPUT... OUTPUT.h5 [--level char|byte] [--tokenizer FROM] [--vocabulary FROM] [--threads N] "
          "[--like FILE.h5|RUN] [--force] [--json]"),
      str(help, kImportHelp, kVocabularyHelp, "`lockstep data import FORMAT --help` shows the options of one format."),
      import_options(),
      3,
      1 << 20,
      names,
      of_names};
}

}  // namespace lockstep
