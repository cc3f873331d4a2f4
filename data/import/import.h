// Imports text, JSON lines, token ids, images and tables into a dataset file. The output file appears under its name,
// or replaces an earlier file, only when it is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image_layout.h"
#include "data/import/tables/table_reader.h"
#include "data/samples/cell_form.h"
#include "data/samples/dataset_file.h"
#include "data/samples/schema.h"
#include "data/store/progress.h"
#include "data/text/valid_text.h"
#include "data/text/vocabulary.h"

namespace lockstep {

struct ImportOptions {
  bool force = false;              // replace an existing output
  ProgressCallback progress = {};  // of the inputs
  ProgressCallback writing = {};   // then, of tokens: of the output's bytes
  int threads = 0;                 // that decode and encode; 0: one for each core. The output does not depend on it
  // Where the inputs are files, imports of text, JSON lines, texts of tables and images save how far they are, in
  // OUTPUT.partial, each time that so many seconds have passed, and go on from there (PartialOutput).
  double save_every = 5;
  // import_text: the vocabulary that gives the token ids, of the same level as the import; the text need not use all of
  // it. Null: the vocabulary is made from the text.
  std::shared_ptr<const Vocabulary> vocabulary = {};
  // With byte pairs.
  std::string separator = {};   // an added token that follows the text of each input; empty: none
  bool special_tokens = false;  // special tokens in the text are those tokens, not text
  InvalidBytes invalid = InvalidBytes::kRefuse;
  // Data that the output is to be like: it gets that one's normalisation, numbers of classes and columns, found by name
  // (data/samples/schema.h), so that what was trained on it can be measured on the output. What it does not have is
  // kBadData.
  std::shared_ptr<const LikeData> like = {};
  // Samples that are only predicted: targets are not read, and label 0 stands in the place of each. With `like`. The
  // order is that of the input, and what becomes of a sample does not depend on the others.
  bool without_targets = false;
};

// All import functions throw ExitCode::kMissingInput, kBadData (naming the file and the byte or index), kOutputLocked
// (the output exists), kStorage.

// Several inputs are concatenated in order; at level kBpe, which needs a vocabulary, each is encoded by itself.
// Character level needs UTF-8. With a vocabulary in `options`, a character that is not in it is an error (kBadData)
// that names file, byte and character.
void import_text(const std::vector<std::string>& inputs, const std::string& output, TextLevel level,
                 const ImportOptions& options = {});

// JSON lines, or files of one list of objects: of each object one record is made (data/text/record_encoder.h). One of
// these is set: `text`; `prompt` and `completion`, whose tokens alone are targets; `messages`, a list of objects with
// "role" and "content" (conversation_of()), and perhaps a "weight", 1 or 0, where 0 makes the message no target;
// `chosen` and `rejected`, of which a pair of records is made, each behind the prompt where `prompt` is set, too.
struct JsonFields {
  std::string text = {}, prompt = {}, completion = {}, messages = {};
  // Of `messages` (chat_template() in data/text/chat_template.h), and of prompts with answers: with a template each of
  // prompt, completion, chosen and rejected is a list of messages, or a text, which is one message: of the user the
  // prompt, of the assistant an answer. Where it is empty these are texts, unless the first record holds lists.
  std::string chat_template = {};
  std::string template_values = {};  // a JSON object of what the template may ask for; empty: nothing
  std::string label = {};            // with `text`: the label of the record: a text, an integer, true or false
  std::string weight = {};           // with `label`: the record's weight (kSampleWeights); empty: all weigh 1
  bool many_labels = false;          // as of TableOptions
  std::string chosen = {}, rejected = {};
};
// Inputs are read in order, and "-", standard input, once, so that it may be a pipe. The tokens are those of
// options.vocabulary, bytes where it is null; options.separator follows each record and is a target. Empty lines and
// empty records are left out. A line that is no such record is an error (kBadData) that names file and line; the first
// `skip_bad` of them are warned of and left out instead.
void import_json(const std::vector<std::string>& inputs, const std::string& output, const JsonFields& fields,
                 int64_t skip_bad, const ImportOptions& options = {});

// A CSV or TSV file whose first row names the columns: a record is made of the text in one column, with the label in
// another one, or without labels where that name is empty. Rows without text are left out.
struct CsvTextColumns {
  std::string text = {}, label = {};
  bool many_labels = false;  // as of TableOptions
  TextEncoding encoding = TextEncoding::kUtf8;
  char delimiter = 0;       // likewise
  std::string weight = {};  // with `label`: the column of each record's weight (kSampleWeights); empty: all weigh 1
};
void import_csv_text(const std::string& table, const std::string& output, const CsvTextColumns& columns,
                     const ImportOptions& options = {});

// A record of each text in a column of a table, or in each line of a text file (TableFile::lines), in their order; with
// ImportOptions::like of text that has labels, each with the label 0. An empty text is an error (kBadData) that names
// file and line. options.vocabulary is needed.
void import_texts(const TableFile& table, const std::string& column, const std::string& output,
                  const ImportOptions& options);

// Token ids that other programs wrote; options.vocabulary says what they mean, level "ids" where it is null.
struct TokenFileOptions {
  int64_t vocabulary_size = 0;  // without a vocabulary; 0: the largest id plus one
  int64_t document_token = -1;  // import_llmc: a record begins with each token of this id; -1: no records
};
// llm.c's files: uint16 (magic number 20240520) or uint32 (20240801).
void import_llmc(const std::vector<std::string>& inputs, const std::string& output, const TokenFileOptions& tokens,
                 const ImportOptions& options = {});
// Indexed datasets of Megatron-LM: an input is PREFIX, PREFIX.idx or PREFIX.bin. Each document is a record.
void import_megatron(const std::vector<std::string>& inputs, const std::string& output, const TokenFileOptions& tokens,
                     const ImportOptions& options = {});

// IDX files, gzip or plain: unsigned bytes [n, height, width] or [n, height, width, channels], and labels [n], which
// are not read with ImportOptions::without_targets.
// Labels must lie in [0, classes); 0 classes means the largest label plus one.
void import_idx(const std::string& images, const std::string& labels, const std::string& output, int64_t classes = 0,
                const ImportOptions& options = {});

struct ImageOptions {
  std::vector<std::string> files =
      {};                     // in the place of a folder's, in this order; with ImportOptions::without_targets
  std::string labels = {};    // a CSV or TSV file with the columns `file` and `label`; empty: labels are subfolders
  std::string weight = {};    // its column of each image's weight (kSampleWeights); empty: all weigh 1
  bool keep_encoded = false;  // also where all images have one size
  std::string masks = {};     // a folder of PNG files with the images' names; empty: each image has a label
  std::string boxes = {};     // COCO's JSON file, or a folder of YOLO's text files with the images' names
  int64_t classes = 0;        // of masks or YOLO's boxes; 0: the largest value plus one
  int64_t ignored = -1;       // the value of a mask's pixels that are no targets; -1: there is none
  std::string palette = {};   // a file of the colours of masks' classes (data/import/images/mask_values.h); empty:
                              // values are classes, but where all are 0 or 255 these are the classes 0 and 1
  int64_t skip_bad = 0;       // so many images that cannot be decoded are warned of and left out
  TextEncoding encoding = TextEncoding::kUtf8;  // of `labels`, or of subfolders' names
};
// PNG and JPEG files within a folder, each with a label, or a mask: a class for every pixel, as the values of a grey
// PNG or the indices of one with a palette. Images of one size are stored as pixels, others as the files that they are,
// which loaders decode. The dataset is a function of the files' names, labels and contents. Returns the paths of the
// images that were left out, in order.
std::vector<std::string> import_images(const std::string& folder, const std::string& output,
                                       const ImageOptions& images = {}, const ImportOptions& options = {});

struct ShardOptions {
  std::string label = {};     // the field of each sample's .json that holds its label; empty: the label is the .cls
  bool keep_encoded = false;  // as of ImageOptions
  int64_t skip_bad = 0;       // so many images that cannot be decoded, or lack a label, are warned of and left out
};
// Images in WebDataset's shards: tar archives, plain or compressed, in which members that follow each other and have
// one name before the first point are a sample: an image (.png, .jpg or .jpeg), and its label (data/import/
// shard_samples.h). Samples keep the order of the shards; else the output is that of import_images of the same files.
// "-" is standard input. Nothing is extracted under the members' names. kDevice where this build reads no tar.
void import_shards(const std::vector<std::string>& shards, const std::string& output, const ShardOptions& how = {},
                   const ImportOptions& options = {});

struct ShardTextOptions {
  std::string text = "txt";  // what the names of the members that hold texts end with, behind the first point
  std::string label = {};    // as of ShardOptions; empty: the .cls where the first sample has one, or no label
  bool many_labels = false;  // as of TableOptions
};
// A record of each sample's text in such shards, in their order, as import_csv_text() makes them of cells.
void import_shard_texts(const std::vector<std::string>& shards, const std::string& output,
                        const ShardTextOptions& how = {}, const ImportOptions& options = {});

bool is_image_name(const std::string& path);  // whether it ends in .png, .jpg or .jpeg, in any case
// The PNG and JPEG files within a folder, at any depth, in the order of their names, each with the folder's path.
// Throws kMissingInput, and kBadData where there is none.
std::vector<std::string> images_within(const std::string& folder);

struct TableOptions {
  std::string label = {};                    // the column of the labels; or
  std::string target = {};                   // that of the numbers which a regression predicts
  std::vector<std::string> categories = {};  // columns that are categories though they hold numbers
  std::vector<std::string> leave_out = {};   // columns that are not imported
  bool fill_missing = false;  // a missing number becomes the column's mean, a missing category one of its own
  // Texts of cells that stand for no value; empty: those of pandas' read_csv, and "?". An empty cell always stands for
  // none. A column that has more numbers than other texts, or mostly texts that the options below would read as numbers
  // or dates, is an error unless it is one of `categories`.
  std::vector<std::string> missing = {};
  bool many_labels = false;  // more than kManyLabels (data/samples/label_index.h) different labels are meant, which is
                             // an error otherwise
  std::string weight = {};   // the column of each row's weight (kSampleWeights), which is no feature; empty: all are 1
  TextEncoding encoding = TextEncoding::kUtf8;
  char delimiter = 0;  // between cells; 0: by the name and the first row (csv_separator in data/import/tables/csv.h)
  bool decimal_comma = false;  // numbers have a comma in the place of the point
  // NumberForm of data/samples/cell_form.h; 0: nothing stands between thousands. With ImportOptions::like, where
  // neither this nor decimal_comma is given, numbers are read as those of the earlier table; `strip` and `dates` always
  // are.
  std::optional<char> thousands = {};
  std::vector<std::string> strip = {};
  std::vector<std::string> dates =
      {};  // columns, also the target, that hold dates or times (data/import/tables/date_cell.h)
  DateOrder date_order = DateOrder::kYearFirst;
  // With ImportOptions::like: a category that the earlier table has not is as a missing value; of a column that had
  // none there, none of its features is 1. Otherwise it is an error.
  bool unknown_is_missing = false;
  std::string name = {};  // of the table, for messages; empty: its path
};
// A CSV or TSV file whose first row names the columns, or JSON lines (data/import/tables/table_reader.h). A first
// column without a name, as the index that pandas writes, is left out with a warning. A column of numbers is a feature,
// normalised to mean 0 and standard deviation 1, and so is one of dates, as days since 1970-01-01; one of other texts
// has a feature for each of them, which is 1 where it stands and 0 elsewhere. A cell without a value is an error
// without fill_missing.
void import_csv(const std::string& table, const std::string& output, const TableOptions& columns,
                const ImportOptions& options = {});

// The same of Parquet and Arrow files (data/import/tables/columnar_table.h), whose rows follow each other; texts as of
// import_csv_text. In a build without LOCKSTEP_PARQUET an error (kBadData) that names what converts them.
void import_columnar(const std::vector<std::string>& files, const std::string& output, const TableOptions& columns,
                     const ImportOptions& options = {});
void import_columnar_texts(const std::vector<std::string>& files, const std::string& output,
                           const CsvTextColumns& columns, const ImportOptions& options = {});

// Arrays that NumPy saved, in any byte order, in C or Fortran order: images, whole numbers from 0 to 255 or
// floating-point numbers within [0, 1] (stored to the nearest 1/255), [n, height, width], [n, height, width, channels]
// or [n, channels, height, width] (data/images/image_layout.h), or features, numbers [n, features], which are
// normalised; and labels, integers or truths [n] or [n, 1], or numbers that a regression predicts, floating-point
// likewise. `weights` are numbers [n] or [n, 1], by which each sample's loss counts; empty: all weigh 1. `labels` and
// `weights` are not read with ImportOptions::without_targets.
void import_npy(const std::string& samples, const std::string& labels, const std::string& output,
                const ImportOptions& options = {}, ImageLayout layout = ImageLayout::kByShape,
                const std::string& weights = {});
// The same of arrays in one archive (.npz); empty names stand for x and y, or x_train and y_train, and for no weights.
void import_npz(const std::string& archive, const std::string& samples, const std::string& labels,
                const std::string& output, const ImportOptions& options = {},
                ImageLayout layout = ImageLayout::kByShape, const std::string& weights = {});

// The vocabulary that import_text would make from a UTF-8 text file; and the vocabulary of a dataset file (null at
// level "ids"; throws kBadData where the file holds no text).
std::unique_ptr<Vocabulary> vocabulary_of_text(const std::string& path);
std::unique_ptr<Vocabulary> vocabulary_of_dataset(const std::string& path);
// Whether a file has the HDF5 signature at an offset of its first MiB that HDF5 allows. Throws kMissingInput if the
// file cannot be opened.
bool is_hdf5_file(const std::string& path);

}  // namespace lockstep
