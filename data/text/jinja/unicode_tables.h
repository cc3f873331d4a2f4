// What Python's str knows of characters beside their categories, of Unicode 14 as Python 3.11 has it: each list holds
// the code points of which the named methods say so. Constants.
#pragma once

#include <cstdint>
#include <string_view>

#include "data/text/tokenizer/unicode_8.h"

namespace lockstep::jinja {

// Where ten decimal digits begin, those of 0 to 9 (isdecimal).
constexpr uint32_t kDecimalZeros[] = {
    0x30,    0x660,   0x6F0,   0x7C0,   0x966,   0x9E6,   0xA66,   0xAE6,   0xB66,   0xBE6,   0xC66,
    0xCE6,   0xD66,   0xDE6,   0xE50,   0xED0,   0xF20,   0x1040,  0x1090,  0x17E0,  0x1810,  0x1946,
    0x19D0,  0x1A80,  0x1A90,  0x1B50,  0x1BB0,  0x1C40,  0x1C50,  0xA620,  0xA8D0,  0xA900,  0xA9D0,
    0xA9F0,  0xAA50,  0xABF0,  0xFF10,  0x104A0, 0x10D30, 0x11066, 0x110F0, 0x11136, 0x111D0, 0x112F0,
    0x11450, 0x114D0, 0x11650, 0x116C0, 0x11730, 0x118E0, 0x11950, 0x11C50, 0x11D50, 0x11DA0, 0x16A60,
    0x16AC0, 0x16B50, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6, 0x1E140, 0x1E2F0, 0x1E950, 0x1FBF0};

// isdigit, and not isdecimal: such as U+00B2.
constexpr CodePoints kOtherDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                       {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                       {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                       {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                       {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// isnumeric, and not isdigit: such as U+00BD and U+4E00.
constexpr CodePoints kOtherNumbers[] = {
    {0xBC, 0xBE},       {0x9F4, 0x9F9},     {0xB72, 0xB77},     {0xBF0, 0xBF2},     {0xC78, 0xC7E},
    {0xD58, 0xD5E},     {0xD70, 0xD78},     {0xF2A, 0xF33},     {0x1372, 0x137C},   {0x16EE, 0x16F0},
    {0x17F0, 0x17F9},   {0x2150, 0x2182},   {0x2185, 0x2189},   {0x2469, 0x2473},   {0x247D, 0x2487},
    {0x2491, 0x249B},   {0x24EB, 0x24F4},   {0x24FE, 0x24FE},   {0x277F, 0x277F},   {0x2789, 0x2789},
    {0x2793, 0x2793},   {0x2CFD, 0x2CFD},   {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303A},
    {0x3192, 0x3195},   {0x3220, 0x3229},   {0x3248, 0x324F},   {0x3251, 0x325F},   {0x3280, 0x3289},
    {0x32B1, 0x32BF},   {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382A, 0x382A},   {0x3B4D, 0x3B4D},
    {0x4E00, 0x4E00},   {0x4E03, 0x4E03},   {0x4E07, 0x4E07},   {0x4E09, 0x4E09},   {0x4E5D, 0x4E5D},
    {0x4E8C, 0x4E8C},   {0x4E94, 0x4E94},   {0x4E96, 0x4E96},   {0x4EBF, 0x4EC0},   {0x4EDF, 0x4EDF},
    {0x4EE8, 0x4EE8},   {0x4F0D, 0x4F0D},   {0x4F70, 0x4F70},   {0x5104, 0x5104},   {0x5146, 0x5146},
    {0x5169, 0x5169},   {0x516B, 0x516B},   {0x516D, 0x516D},   {0x5341, 0x5341},   {0x5343, 0x5345},
    {0x534C, 0x534C},   {0x53C1, 0x53C4},   {0x56DB, 0x56DB},   {0x58F1, 0x58F1},   {0x58F9, 0x58F9},
    {0x5E7A, 0x5E7A},   {0x5EFE, 0x5EFF},   {0x5F0C, 0x5F0E},   {0x5F10, 0x5F10},   {0x62FE, 0x62FE},
    {0x634C, 0x634C},   {0x67D2, 0x67D2},   {0x6F06, 0x6F06},   {0x7396, 0x7396},   {0x767E, 0x767E},
    {0x8086, 0x8086},   {0x842C, 0x842C},   {0x8CAE, 0x8CAE},   {0x8CB3, 0x8CB3},   {0x8D30, 0x8D30},
    {0x9621, 0x9621},   {0x9646, 0x9646},   {0x964C, 0x964C},   {0x9678, 0x9678},   {0x96F6, 0x96F6},
    {0xA6E6, 0xA6EF},   {0xA830, 0xA835},   {0xF96B, 0xF96B},   {0xF973, 0xF973},   {0xF978, 0xF978},
    {0xF9B2, 0xF9B2},   {0xF9D1, 0xF9D1},   {0xF9D3, 0xF9D3},   {0xF9FD, 0xF9FD},   {0x10107, 0x10133},
    {0x10140, 0x10178}, {0x1018A, 0x1018B}, {0x102E1, 0x102FB}, {0x10320, 0x10323}, {0x10341, 0x10341},
    {0x1034A, 0x1034A}, {0x103D1, 0x103D5}, {0x10858, 0x1085F}, {0x10879, 0x1087F}, {0x108A7, 0x108AF},
    {0x108FB, 0x108FF}, {0x10916, 0x1091B}, {0x109BC, 0x109BD}, {0x109C0, 0x109CF}, {0x109D2, 0x109FF},
    {0x10A44, 0x10A48}, {0x10A7D, 0x10A7E}, {0x10A9D, 0x10A9F}, {0x10AEB, 0x10AEF}, {0x10B58, 0x10B5F},
    {0x10B78, 0x10B7F}, {0x10BA9, 0x10BAF}, {0x10CFA, 0x10CFF}, {0x10E69, 0x10E7E}, {0x10F1D, 0x10F26},
    {0x10F51, 0x10F54}, {0x10FC5, 0x10FCB}, {0x1105B, 0x11065}, {0x111E1, 0x111F4}, {0x1173A, 0x1173B},
    {0x118EA, 0x118F2}, {0x11C5A, 0x11C6C}, {0x11FC0, 0x11FD4}, {0x12400, 0x1246E}, {0x16B5B, 0x16B61},
    {0x16E80, 0x16E96}, {0x1D2E0, 0x1D2F3}, {0x1D360, 0x1D378}, {0x1E8C7, 0x1E8CF}, {0x1EC71, 0x1ECAB},
    {0x1ECAD, 0x1ECAF}, {0x1ECB1, 0x1ECB4}, {0x1ED01, 0x1ED2D}, {0x1ED2F, 0x1ED3D}, {0x1F10B, 0x1F10C},
    {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200E2, 0x200E2}, {0x20121, 0x20121}, {0x2092A, 0x2092A},
    {0x20983, 0x20983}, {0x2098C, 0x2098C}, {0x2099C, 0x2099C}, {0x20AEA, 0x20AEA}, {0x20AFD, 0x20AFD},
    {0x20B19, 0x20B19}, {0x22390, 0x22390}, {0x22998, 0x22998}, {0x23B1B, 0x23B1B}, {0x2626D, 0x2626D},
    {0x2F890, 0x2F890}};

// isupper, and no capital letter (Other_Uppercase).
constexpr CodePoints kOtherCapitals[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

// islower, and no small letter (Other_Lowercase).
constexpr CodePoints kOtherSmall[] = {
    {0xAA, 0xAA},     {0xBA, 0xBA},     {0x2B0, 0x2B8},     {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},
    {0x37A, 0x37A},   {0x1D2C, 0x1D6A}, {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C}, {0x2170, 0x217F}, {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},   {0xA69C, 0xA69D},   {0xA770, 0xA770},
    {0xA7F8, 0xA7F9}, {0xAB5C, 0xAB5F}, {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};

// Case_Ignorable that are neither marks nor of the categories Cf, Lm and Sk: a sigma ends a word behind them, too.
constexpr CodePoints kOtherIgnorable[] = {{0x27, 0x27},     {0x2E, 0x2E},     {0x3A, 0x3A},     {0xB7, 0xB7},
                                          {0x387, 0x387},   {0x55F, 0x55F},   {0x5F4, 0x5F4},   {0x2018, 0x2019},
                                          {0x2024, 0x2024}, {0x2027, 0x2027}, {0xFE13, 0xFE13}, {0xFE52, 0xFE52},
                                          {0xFE55, 0xFE55}, {0xFF07, 0xFF07}, {0xFF0E, 0xFF0E}, {0xFF1A, 0xFF1A}};

// Characters of which upper() or title() makes several.
struct SeveralCapitals {
  uint32_t of;
  std::string_view upper, title;
};
constexpr SeveralCapitals kSeveralCapitals[] = {{0xDF, "SS", "Ss"},
                                                {0x149, "\u02BCN", "\u02BCN"},
                                                {0x1F0, "J\u030C", "J\u030C"},
                                                {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
                                                {0x3B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
                                                {0x587, "\u0535\u0552", "\u0535\u0582"},
                                                {0x1E96, "H\u0331", "H\u0331"},
                                                {0x1E97, "T\u0308", "T\u0308"},
                                                {0x1E98, "W\u030A", "W\u030A"},
                                                {0x1E99, "Y\u030A", "Y\u030A"},
                                                {0x1E9A, "A\u02BE", "A\u02BE"},
                                                {0x1F50, "\u03A5\u0313", "\u03A5\u0313"},
                                                {0x1F52, "\u03A5\u0313\u0300", "\u03A5\u0313\u0300"},
                                                {0x1F54, "\u03A5\u0313\u0301", "\u03A5\u0313\u0301"},
                                                {0x1F56, "\u03A5\u0313\u0342", "\u03A5\u0313\u0342"},
                                                {0x1F80, "\u1F08\u0399", "\u1F88"},
                                                {0x1F81, "\u1F09\u0399", "\u1F89"},
                                                {0x1F82, "\u1F0A\u0399", "\u1F8A"},
                                                {0x1F83, "\u1F0B\u0399", "\u1F8B"},
                                                {0x1F84, "\u1F0C\u0399", "\u1F8C"},
                                                {0x1F85, "\u1F0D\u0399", "\u1F8D"},
                                                {0x1F86, "\u1F0E\u0399", "\u1F8E"},
                                                {0x1F87, "\u1F0F\u0399", "\u1F8F"},
                                                {0x1F88, "\u1F08\u0399", "\u1F88"},
                                                {0x1F89, "\u1F09\u0399", "\u1F89"},
                                                {0x1F8A, "\u1F0A\u0399", "\u1F8A"},
                                                {0x1F8B, "\u1F0B\u0399", "\u1F8B"},
                                                {0x1F8C, "\u1F0C\u0399", "\u1F8C"},
                                                {0x1F8D, "\u1F0D\u0399", "\u1F8D"},
                                                {0x1F8E, "\u1F0E\u0399", "\u1F8E"},
                                                {0x1F8F, "\u1F0F\u0399", "\u1F8F"},
                                                {0x1F90, "\u1F28\u0399", "\u1F98"},
                                                {0x1F91, "\u1F29\u0399", "\u1F99"},
                                                {0x1F92, "\u1F2A\u0399", "\u1F9A"},
                                                {0x1F93, "\u1F2B\u0399", "\u1F9B"},
                                                {0x1F94, "\u1F2C\u0399", "\u1F9C"},
                                                {0x1F95, "\u1F2D\u0399", "\u1F9D"},
                                                {0x1F96, "\u1F2E\u0399", "\u1F9E"},
                                                {0x1F97, "\u1F2F\u0399", "\u1F9F"},
                                                {0x1F98, "\u1F28\u0399", "\u1F98"},
                                                {0x1F99, "\u1F29\u0399", "\u1F99"},
                                                {0x1F9A, "\u1F2A\u0399", "\u1F9A"},
                                                {0x1F9B, "\u1F2B\u0399", "\u1F9B"},
                                                {0x1F9C, "\u1F2C\u0399", "\u1F9C"},
                                                {0x1F9D, "\u1F2D\u0399", "\u1F9D"},
                                                {0x1F9E, "\u1F2E\u0399", "\u1F9E"},
                                                {0x1F9F, "\u1F2F\u0399", "\u1F9F"},
                                                {0x1FA0, "\u1F68\u0399", "\u1FA8"},
                                                {0x1FA1, "\u1F69\u0399", "\u1FA9"},
                                                {0x1FA2, "\u1F6A\u0399", "\u1FAA"},
                                                {0x1FA3, "\u1F6B\u0399", "\u1FAB"},
                                                {0x1FA4, "\u1F6C\u0399", "\u1FAC"},
                                                {0x1FA5, "\u1F6D\u0399", "\u1FAD"},
                                                {0x1FA6, "\u1F6E\u0399", "\u1FAE"},
                                                {0x1FA7, "\u1F6F\u0399", "\u1FAF"},
                                                {0x1FA8, "\u1F68\u0399", "\u1FA8"},
                                                {0x1FA9, "\u1F69\u0399", "\u1FA9"},
                                                {0x1FAA, "\u1F6A\u0399", "\u1FAA"},
                                                {0x1FAB, "\u1F6B\u0399", "\u1FAB"},
                                                {0x1FAC, "\u1F6C\u0399", "\u1FAC"},
                                                {0x1FAD, "\u1F6D\u0399", "\u1FAD"},
                                                {0x1FAE, "\u1F6E\u0399", "\u1FAE"},
                                                {0x1FAF, "\u1F6F\u0399", "\u1FAF"},
                                                {0x1FB2, "\u1FBA\u0399", "\u1FBA\u0345"},
                                                {0x1FB3, "\u0391\u0399", "\u1FBC"},
                                                {0x1FB4, "\u0386\u0399", "\u0386\u0345"},
                                                {0x1FB6, "\u0391\u0342", "\u0391\u0342"},
                                                {0x1FB7, "\u0391\u0342\u0399", "\u0391\u0342\u0345"},
                                                {0x1FBC, "\u0391\u0399", "\u1FBC"},
                                                {0x1FC2, "\u1FCA\u0399", "\u1FCA\u0345"},
                                                {0x1FC3, "\u0397\u0399", "\u1FCC"},
                                                {0x1FC4, "\u0389\u0399", "\u0389\u0345"},
                                                {0x1FC6, "\u0397\u0342", "\u0397\u0342"},
                                                {0x1FC7, "\u0397\u0342\u0399", "\u0397\u0342\u0345"},
                                                {0x1FCC, "\u0397\u0399", "\u1FCC"},
                                                {0x1FD2, "\u0399\u0308\u0300", "\u0399\u0308\u0300"},
                                                {0x1FD3, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
                                                {0x1FD6, "\u0399\u0342", "\u0399\u0342"},
                                                {0x1FD7, "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
                                                {0x1FE2, "\u03A5\u0308\u0300", "\u03A5\u0308\u0300"},
                                                {0x1FE3, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
                                                {0x1FE4, "\u03A1\u0313", "\u03A1\u0313"},
                                                {0x1FE6, "\u03A5\u0342", "\u03A5\u0342"},
                                                {0x1FE7, "\u03A5\u0308\u0342", "\u03A5\u0308\u0342"},
                                                {0x1FF2, "\u1FFA\u0399", "\u1FFA\u0345"},
                                                {0x1FF3, "\u03A9\u0399", "\u1FFC"},
                                                {0x1FF4, "\u038F\u0399", "\u038F\u0345"},
                                                {0x1FF6, "\u03A9\u0342", "\u03A9\u0342"},
                                                {0x1FF7, "\u03A9\u0342\u0399", "\u03A9\u0342\u0345"},
                                                {0x1FFC, "\u03A9\u0399", "\u1FFC"},
                                                {0xFB00, "FF", "Ff"},
                                                {0xFB01, "FI", "Fi"},
                                                {0xFB02, "FL", "Fl"},
                                                {0xFB03, "FFI", "Ffi"},
                                                {0xFB04, "FFL", "Ffl"},
                                                {0xFB05, "ST", "St"},
                                                {0xFB06, "ST", "St"},
                                                {0xFB13, "\u0544\u0546", "\u0544\u0576"},
                                                {0xFB14, "\u0544\u0535", "\u0544\u0565"},
                                                {0xFB15, "\u0544\u053B", "\u0544\u056B"},
                                                {0xFB16, "\u054E\u0546", "\u054E\u0576"},
                                                {0xFB17, "\u0544\u053D", "\u0544\u056D"}};

}  // namespace lockstep::jinja
